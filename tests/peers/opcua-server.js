// An OPC UA server that is not ours (node-opcua). Publishes changing values and prints each one as a JSON line:
// [node id, source time in ms since 1970, value]. Ends when its standard input closes.
const { OPCUAServer, Variant, DataType, DataValue, StatusCodes, SecurityPolicy, MessageSecurityMode } = require("node-opcua");
const path = require("path");
const { OPCUACertificateManager } = require("node-opcua");

const kinds = { Double: DataType.Double, Float: DataType.Float, Int32: DataType.Int32, Boolean: DataType.Boolean, String: DataType.String };
const value = { Double: (n) => n / 8, Float: (n) => n / 4, Int32: (n) => -n, Boolean: (n) => Math.floor(n / 100) % 2 === 1, String: (n) => `step ${n}` };
const perKind = 20;

(async () => {
  const pki = new OPCUACertificateManager({ rootFolder: process.argv[3], automaticallyAcceptUnknownCertificate: process.argv[4] !== "strict" });
  await pki.initialize();
  const server = new OPCUAServer({
    port: Number(process.argv[2]),
    host: "127.0.0.1",
    hostname: "127.0.0.1",
    serverCertificateManager: pki,
    securityPolicies: [SecurityPolicy.None, SecurityPolicy.Basic256Sha256],
    securityModes: [MessageSecurityMode.None, MessageSecurityMode.SignAndEncrypt],
    allowAnonymous: true,
  });
  await server.initialize();
  const namespace = server.engine.addressSpace.getOwnNamespace();
  const nodes = [];
  for (const [kind, dataType] of Object.entries(kinds)) {
    for (let i = 0; i < perKind; i++) {
      const node = namespace.addVariable({
        organizedBy: server.engine.addressSpace.rootFolder.objects,
        browseName: `${kind}${i}`,
        nodeId: `s=${kind}${i}`,
        dataType,
        value: new Variant({ dataType, value: value[kind](0) }),
      });
      nodes.push([kind, i, node]);
    }
  }
  let n = -1;
  const publish = () => {
    n += 1;
    const now = new Date();
    return nodes.map(([kind, i, node]) => {
      const v = value[kind](n * 100 + i);
      const statusCode = i === 7 && n % 3 === 1 ? StatusCodes.UncertainLastUsableValue : StatusCodes.Good;
      node.setValueFromSource({ dataType: kinds[kind], value: v }, statusCode, now);
      return JSON.stringify([node.nodeId.toString(), now.getTime(), v, statusCode.value]);
    });
  };
  const first = publish();
  await server.start();
  console.log(["ready", ...first].join("\n"));
  setInterval(() => process.stdout.write(publish().join("\n") + "\n"), 200);
  process.stdin.on("end", () => process.exit(0)).resume();
})();
