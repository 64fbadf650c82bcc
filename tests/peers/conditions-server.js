// node-opcua's server with alarms and conditions, and its own log of them: FOLDER/events.jsonl, one line an event that it
// raises, also again in a refresh. What its arguments and commands are: see tests/peers.py.
const { OPCUAServer, OPCUACertificateManager, DataType, SecurityPolicy, MessageSecurityMode } = require("node-opcua");
const fs = require("fs");
const path = require("path");
const { obey, say } = require("./truth");

const [port, folder, , count] = process.argv.slice(2);

(async () => {
  const pki = new OPCUACertificateManager({
    rootFolder: path.join(folder, "pki"),
    automaticallyAcceptUnknownCertificate: true,
  });
  await pki.initialize();
  const server = new OPCUAServer({
    port: Number(port),
    host: "127.0.0.1",
    hostname: "127.0.0.1",
    serverCertificateManager: pki,
    userCertificateManager: pki,
    securityPolicies: [SecurityPolicy.None, SecurityPolicy.Basic256Sha256],
    securityModes: [MessageSecurityMode.None, MessageSecurityMode.SignAndEncrypt],
    allowAnonymous: true,
  });
  await server.initialize();
  const addressSpace = server.engine.addressSpace;
  addressSpace.installAlarmsAndConditionsService();
  const namespace = addressSpace.getOwnNamespace();
  const log = fs.openSync(path.join(folder, "events.jsonl"), "a");
  addressSpace.rootFolder.objects.server.on("event", (event) => {
    const line = { id: event.eventId?.value?.toString("hex") ?? null, type: event.eventType.value.toString() };
    line.message = event.message?.value?.text ?? null;
    line.name = event.conditionName?.value ?? null;
    fs.writeSync(log, `${JSON.stringify(line)}\n`);
  });
  const area = namespace.addObject({
    browseName: "Area",
    nodeId: "s=Area",
    organizedBy: addressSpace.rootFolder.objects,
    notifierOf: addressSpace.rootFolder.objects.server,
    eventNotifier: 1,
  });
  const levels = Array.from({ length: Math.ceil(count / 5) }, (_, k) => {
    const name = `Double${k}`;
    const level = namespace.addVariable({
      browseName: name,
      nodeId: `s=${name}`,
      componentOf: area,
      eventSourceOf: area,
      dataType: DataType.Double,
      value: { dataType: DataType.Double, value: 50 },
    });
    return {
      level,
      limit: namespace.instantiateNonExclusiveLimitAlarm("NonExclusiveLimitAlarmType", {
        browseName: `Limit${k}`,
        nodeId: `s=Limit${k}`,
        conditionName: `Limit${k}`,
        highHighLimit: 90,
        highLimit: 70,
        lowLimit: 20,
        lowLowLimit: 5,
        optionals: ["ConfirmedState", "Confirm"], // without it, the server does not retain what is acknowledged
        conditionSource: level,
        inputNode: level,
      }),
      hot: namespace.instantiateExclusiveLimitAlarm("ExclusiveLimitAlarmType", {
        browseName: `Hot${k}`,
        nodeId: `s=Hot${k}`,
        conditionName: `Hot${k}`,
        highHighLimit: 99,
        highLimit: 95,
        lowLimit: -10,
        lowLowLimit: -20,
        conditionSource: level,
        inputNode: level,
      }),
    };
  });
  const set = (k, value) => levels[k].level.setValueFromSource({ dataType: DataType.Double, value });
  let number = 0;
  const simple = (n) => {
    for (let k = 0; k < n; k++) {
      number += 1;
      area.raiseEvent("BaseEventType", {
        message: { dataType: DataType.LocalizedText, value: { text: `event ${number}` } },
        severity: { dataType: DataType.UInt16, value: 100 },
        sourceName: { dataType: DataType.String, value: "Area" },
      });
    }
  };
  const required = () => addressSpace.rootFolder.objects.server.raiseEvent("RefreshRequiredEventType", {});
  await server.start();
  obey({ high: (k) => set(k, 80), hot: (k) => set(k, 97), normal: (k) => set(k, 50), simple, required });
  say("ready");
})();
