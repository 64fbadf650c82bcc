// A Modbus TCP server that is not ours (modbus-serial). Numbers are encoded by Node's Buffer, word orders by its swaps.
// What its arguments, commands and truth are: see tests/peers.py.
const { ServerTCP } = require("modbus-serial");
const { Truth, now, obey, say } = require("./truth");

const [port, folder, prefix, count] = process.argv.slice(2);
const truth = new Truth(folder, prefix, "modbus");
const FIRST = 700; // register of channel 0; a float32 takes two
const REGISTERS = 1000;
let answers = 0;

const image = Buffer.alloc(2 * REGISTERS);
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
  int48: [6, "writeIntBE", -123456789012345],
  uint48: [6, "writeUIntBE", 234567890123456],
};
// registers from 0: every type in every order, side by side, eight registers apart
let register = 0;
for (const [, [size, write, value]] of Object.entries(encoders)) {
  for (const order of ["ABCD", "CDAB", "BADC", "DCBA"]) {
    const bytes = Buffer.alloc(size);
    bytes[write](value, 0, size); // the size counts only with the last two
    reorder[order](bytes).copy(image, 2 * register);
    register += 8;
  }
}
image.write("TANK-7", 2 * 500, "latin1");
image.writeUInt16BE(0b0000_0000_1000_0001, 2 * 600);
image.writeBigInt64BE(-9007199254740993n, 2 * 620); // no float64 is equal to these two
image.writeBigUInt64BE(18446744073709551615n, 2 * 624);
image.writeBigInt64BE(9007199254740994n, 2 * 628);

const add = () => truth.named(`unit1/c${truth.names.length}`);
for (let i = 0; i < Number(count); i++) add();

// A new value of every channel that this request reads whole: in the truth before it is sent.
const show = (start, length) => {
  answers += 1;
  const rows = truth.names.flatMap((_, i) => {
    const register = FIRST + 2 * i;
    if (register < start || register + 2 > start + length) return [];
    image.writeFloatBE((answers % 100000) + i / 64, 2 * register);
    return [[i, now(), image.readFloatBE(2 * register), 0]];
  });
  if (rows.length) truth.published(rows);
};

const read = (start, length) => {
  if (start + length > REGISTERS) throw { modbusErrorCode: 2 };
  show(start, length);
  return Array.from({ length }, (_, i) => image.readUInt16BE(2 * (start + i)));
};
const vector = {
  getInputRegister: (address) => image.readUInt16BE(2 * address),
  getHoldingRegister: (address) => read(address, 1)[0],
  getMultipleHoldingRegisters: (start, length) => read(start, length),
  getCoil: (address) => address % 3 === 0,
  getDiscreteInput: (address) => address % 5 === 0,
};
const server = new ServerTCP(vector, { host: "127.0.0.1", port: Number(port), unitID: 1 });
server.on("initialized", () => say("ready"));
server.on("socketError", () => {});
obey({ add });
