// A Modbus TCP server that is not ours (modbus-serial). Numbers are encoded by Node's Buffer, word orders by its swaps.
// Prints the port, then answers until its standard input closes.
const { ServerTCP } = require("modbus-serial");

const image = Buffer.alloc(2 * 1000);
const reorder = {
  ABCD: (b) => b,
  BADC: (b) => b.swap16(),
  DCBA: (b) => b.reverse(),
  CDAB: (b) => b.reverse().swap16(),
};
const encoders = {
  int16: [2, "writeInt16BE", -1234],
  uint16: [2, "writeUInt16BE", 54321],
  int32: [4, "writeInt32BE", -123456789],
  uint32: [4, "writeUInt32BE", 3123456789],
  float32: [4, "writeFloatBE", -12.625],
  float64: [8, "writeDoubleBE", 3.141592653589793],
  int64: [8, "writeBigInt64BE", -123456789012345n],
  uint64: [8, "writeBigUInt64BE", 123456789012345n],
};
// registers from 0: every type in every order, side by side, eight registers apart
let register = 0;
for (const [, [size, write, value]] of Object.entries(encoders)) {
  for (const order of ["ABCD", "CDAB", "BADC", "DCBA"]) {
    const bytes = Buffer.alloc(size);
    bytes[write](value);
    reorder[order](bytes).copy(image, 2 * register);
    register += 8;
  }
}
image.write("TANK-7", 2 * 500, "latin1");
image.writeUInt16BE(0b0000_0000_1000_0001, 2 * 600);

const vector = {
  getInputRegister: (address) => image.readUInt16BE(2 * address),
  getHoldingRegister: (address) => {
    if (address >= 1000) throw { modbusErrorCode: 2 };
    return image.readUInt16BE(2 * address);
  },
  getCoil: (address) => address % 3 === 0,
  getDiscreteInput: (address) => address % 5 === 0,
};
const server = new ServerTCP(vector, { host: "127.0.0.1", port: Number(process.argv[2]), unitID: 1 });
server.on("initialized", () => console.log("ready"));
server.on("socketError", () => {});
process.stdin.on("end", () => process.exit(0)).resume();
