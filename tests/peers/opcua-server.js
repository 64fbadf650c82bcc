// An OPC UA server that is not ours (node-opcua). What its arguments, commands and truth are: see tests/peers.py.
// Every sampling interval is revised to 0: a value is queued when it is published. Queues and their overflow are its own.
const { OPCUAServer, OPCUACertificateManager, Subscription, Variant, DataType } = require("node-opcua");
const { StatusCodes, SecurityPolicy, MessageSecurityMode, VariantArrayType, nodesets } = require("node-opcua");
const path = require("path");
const { Truth, obey, say } = require("./truth");

const kinds = ["Double", "Float", "Int32", "Boolean", "String"];
// 0 - m: -m of 0 is -0, which no Int32 has.
const values = [(m) => m / 8, (m) => m / 4, (m) => 0 - m, (m) => Math.floor(m / 100) % 2 === 1, (m) => `step ${m}`];
const [port, folder, prefix, count, interval, trusts] = process.argv.slice(2);

Subscription.prototype.adjustSamplingInterval = () => 0;

(async () => {
  const pki = new OPCUACertificateManager({
    rootFolder: path.join(folder, "pki"),
    automaticallyAcceptUnknownCertificate: trusts !== "strict",
  });
  await pki.initialize();
  const users = new OPCUACertificateManager({ rootFolder: path.join(folder, "users") });
  await users.initialize();
  const server = new OPCUAServer({
    port: Number(port),
    host: "127.0.0.1",
    hostname: "127.0.0.1",
    serverCertificateManager: pki,
    userCertificateManager: users,
    securityPolicies: [SecurityPolicy.None, SecurityPolicy.Basic256Sha256],
    securityModes: [MessageSecurityMode.None, MessageSecurityMode.SignAndEncrypt],
    allowAnonymous: true,
    nodeset_filename: [nodesets.standard, path.join(__dirname, "drive.xml")],
    serverCapabilities: { minSupportedSampleRate: 0 }, // else changes are folded over that time
  });
  await server.initialize();
  const namespace = server.engine.addressSpace.getOwnNamespace();
  const truth = new Truth(folder, prefix, "opcua");
  const nodes = [];
  let round = 0;
  let last = 0; // ms: a JavaScript date has no more
  const elements = (round) => ({
    dataType: DataType.Double,
    arrayType: VariantArrayType.Array,
    value: Float64Array.from([0, 1, 2, 3], (k) => round + k / 4),
  });
  const array = namespace.addVariable({
    organizedBy: server.engine.addressSpace.rootFolder.objects,
    browseName: "Array",
    nodeId: "s=Array",
    dataType: DataType.Double,
    valueRank: 1,
    arrayDimensions: [4],
    value: new Variant(elements(0)),
  });
  // What it is: see tests/peers.py.
  const driveType = server.engine.addressSpace.findDataType("Drive", namespace.index + 1);
  const drive = (round) => ({
    dataType: DataType.ExtensionObject,
    value: server.engine.addressSpace.constructExtensionObject(driveType, {
      on: round % 2 === 1,
      mode: round % 3,
      motor: { speed: round, name: `step ${round}` },
      torque: round % 2 ? round + 0.5 : undefined,
      temperatures: [0, 1, 2, 3].map((k) => round + k / 4),
      extra: round % 2 ? { text: `step ${round}` } : { number: round },
    }),
  });
  const matrix = (round) => ({
    dataType: DataType.Double,
    arrayType: VariantArrayType.Matrix,
    dimensions: [2, 3],
    value: Float64Array.from([0, 1, 2, 3, 4, 5], (k) => round + k / 8),
  });
  const grid = namespace.addVariable({
    organizedBy: server.engine.addressSpace.rootFolder.objects,
    browseName: "Matrix",
    nodeId: "s=Matrix",
    dataType: DataType.Double,
    valueRank: 2,
    arrayDimensions: [2, 3],
    value: new Variant(matrix(0)),
  });
  const drives = (round) => ({
    dataType: DataType.ExtensionObject,
    arrayType: VariantArrayType.Array,
    value: [drive(round).value, drive(round + 1).value],
  });
  const several = namespace.addVariable({
    organizedBy: server.engine.addressSpace.rootFolder.objects,
    browseName: "Drives",
    nodeId: "s=Drives",
    dataType: driveType.nodeId,
    valueRank: 1,
    arrayDimensions: [2],
    value: new Variant(drives(0)),
  });
  const driven = namespace.addVariable({
    organizedBy: server.engine.addressSpace.rootFolder.objects,
    browseName: "Drive",
    nodeId: "s=Drive",
    dataType: driveType.nodeId,
    value: new Variant(drive(0)),
  });
  // This round's value of every node from first on: in the truth before anybody can see it.
  const publishFrom = (first) => {
    last = Math.max(Date.now(), last + 1);
    const now = new Date(last);
    const rows = nodes.slice(first).map((node, k) => {
      const i = first + k;
      const number = Math.floor(i / kinds.length);
      const uncertain = number === 20 || (number === 7 && round % 3 === 1);
      const statusCode = uncertain ? StatusCodes.UncertainLastUsableValue : StatusCodes.Good;
      return [i, values[i % kinds.length](round * 100 + number), statusCode];
    });
    truth.published(rows.map(([i, value, statusCode]) => [i, last * 1000, value, statusCode.value]));
    for (const [i, value, statusCode] of rows) {
      try {
        nodes[i].setValueFromSource({ dataType: DataType[kinds[i % kinds.length]], value }, statusCode, now);
      } catch (error) {
        // What it throws where a queue overflows on a value that is not Good: its queue has lost a value, unflagged.
        if (!error.stack.includes("_setOverflowBit")) throw error;
      }
    }
    array.setValueFromSource(elements(round), StatusCodes.Good, now);
    driven.setValueFromSource(drive(round), StatusCodes.Good, now);
    grid.setValueFromSource(matrix(round), StatusCodes.Good, now);
    several.setValueFromSource(drives(round), StatusCodes.Good, now);
  };
  const add = () => {
    const i = nodes.length;
    const kind = kinds[i % kinds.length];
    const name = `${kind}${Math.floor(i / kinds.length)}`;
    const dataType = DataType[kind];
    const node = namespace.addVariable({
      organizedBy: server.engine.addressSpace.rootFolder.objects,
      browseName: name,
      nodeId: `s=${name}`,
      dataType,
      value: new Variant({ dataType, value: values[i % kinds.length](0) }),
    });
    truth.named(name);
    nodes.push(node);
    publishFrom(i);
  };
  for (let i = 0; i < Number(count); i++) add();
  await server.start();
  const publish = () => {
    round += 1;
    publishFrom(0);
  };
  let timer;
  const rate = (milliseconds) => {
    clearInterval(timer);
    if (milliseconds) timer = setInterval(publish, milliseconds);
  };
  rate(Number(interval));
  obey({ add, burst: (n) => Array.from({ length: n }, publish), rate });
  say("ready");
})();
