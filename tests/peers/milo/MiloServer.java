// An OPC UA server that is not ours (Eclipse Milo). What its arguments, commands and truth are: see tests/peers.py.
// Each value is handed to the monitored items when it is published, as a server does that reports by exception; queues
// and their overflow are Milo's own.

import static org.eclipse.milo.opcua.stack.core.types.builtin.unsigned.Unsigned.uint;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.security.KeyFactory;
import java.security.KeyPair;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.eclipse.milo.opcua.sdk.core.AccessLevel;
import org.eclipse.milo.opcua.sdk.core.Reference;
import org.eclipse.milo.opcua.sdk.core.types.DynamicEnumType;
import org.eclipse.milo.opcua.sdk.core.types.DynamicStructType;
import org.eclipse.milo.opcua.sdk.core.types.DynamicUnionType;
import org.eclipse.milo.opcua.sdk.core.types.codec.DynamicCodecFactory;
import org.eclipse.milo.opcua.sdk.core.typetree.DataTypeTree;
import org.eclipse.milo.opcua.sdk.server.EndpointConfig;
import org.eclipse.milo.opcua.sdk.server.ManagedNamespaceWithLifecycle;
import org.eclipse.milo.opcua.sdk.server.OpcUaServer;
import org.eclipse.milo.opcua.sdk.server.OpcUaServerConfig;
import org.eclipse.milo.opcua.sdk.server.items.DataItem;
import org.eclipse.milo.opcua.sdk.server.items.MonitoredItem;
import org.eclipse.milo.opcua.sdk.server.nodes.UaDataTypeNode;
import org.eclipse.milo.opcua.sdk.server.nodes.UaObjectNode;
import org.eclipse.milo.opcua.sdk.server.nodes.UaVariableNode;
import org.eclipse.milo.opcua.stack.core.NodeIds;
import org.eclipse.milo.opcua.stack.core.StatusCodes;
import org.eclipse.milo.opcua.stack.core.security.CertificateValidator;
import org.eclipse.milo.opcua.stack.core.security.DefaultApplicationGroup;
import org.eclipse.milo.opcua.stack.core.security.DefaultCertificateManager;
import org.eclipse.milo.opcua.stack.core.security.MemoryCertificateQuarantine;
import org.eclipse.milo.opcua.stack.core.security.MemoryCertificateStore;
import org.eclipse.milo.opcua.stack.core.security.MemoryTrustListManager;
import org.eclipse.milo.opcua.stack.core.security.RsaSha256CertificateFactory;
import org.eclipse.milo.opcua.stack.core.security.SecurityPolicy;
import org.eclipse.milo.opcua.stack.core.types.UaStructuredType;
import org.eclipse.milo.opcua.stack.core.types.builtin.DataValue;
import org.eclipse.milo.opcua.stack.core.types.builtin.DateTime;
import org.eclipse.milo.opcua.stack.core.types.builtin.ExtensionObject;
import org.eclipse.milo.opcua.stack.core.types.builtin.LocalizedText;
import org.eclipse.milo.opcua.stack.core.types.builtin.Matrix;
import org.eclipse.milo.opcua.stack.core.types.builtin.NodeId;
import org.eclipse.milo.opcua.stack.core.types.builtin.QualifiedName;
import org.eclipse.milo.opcua.stack.core.types.builtin.StatusCode;
import org.eclipse.milo.opcua.stack.core.types.builtin.Variant;
import org.eclipse.milo.opcua.stack.core.types.builtin.unsigned.UInteger;
import org.eclipse.milo.opcua.stack.core.types.enumerated.MessageSecurityMode;
import org.eclipse.milo.opcua.stack.core.types.enumerated.StructureType;
import org.eclipse.milo.opcua.stack.core.types.structured.DataTypeDefinition;
import org.eclipse.milo.opcua.stack.core.types.structured.EnumDefinition;
import org.eclipse.milo.opcua.stack.core.types.structured.EnumField;
import org.eclipse.milo.opcua.stack.core.types.structured.StructureDefinition;
import org.eclipse.milo.opcua.stack.core.types.structured.StructureField;
import org.eclipse.milo.opcua.stack.transport.server.tcp.OpcTcpServerTransport;
import org.eclipse.milo.opcua.stack.transport.server.tcp.OpcTcpServerTransportConfig;

public class MiloServer extends ManagedNamespaceWithLifecycle {
  private static final String[] KINDS = {"Double", "Float", "Int32", "Boolean", "String"};
  private static final NodeId[] TYPES = {
    NodeIds.Double, NodeIds.Float, NodeIds.Int32, NodeIds.Boolean, NodeIds.String
  };
  private static final int ROW = 32; // bytes: tag, status, time, value, at

  private final List<String> names = new ArrayList<>();
  private final List<UaVariableNode> nodes = new ArrayList<>();
  private final Map<NodeId, Set<DataItem>> items = new HashMap<>();
  private final String prefix;
  private final Path truth;
  private final OutputStream numbers;
  private final OutputStream texts;
  private DataTypeTree types;
  private UaVariableNode drive;
  private UaVariableNode drives;
  private UaVariableNode matrix;
  private long round = 0;
  private long last = 0; // µs, time of the last round

  MiloServer(OpcUaServer server, Path folder, String prefix, int count) throws Exception {
    super(server, "urn:plantlog:tests:nodes");
    this.prefix = prefix;
    String start = folder.resolve("truth").resolve(Long.toString(now())).toString();
    Files.createDirectories(folder.resolve("truth"));
    truth = Path.of(start + ".names.json");
    numbers = Files.newOutputStream(Path.of(start + ".opcua.truth"), StandardOpenOption.CREATE);
    texts = Files.newOutputStream(Path.of(start + ".texts.jsonl"), StandardOpenOption.CREATE);
    for (int i = 0; i < count; i++) {
      add();
    }
  }

  private static long now() {
    Instant now = Instant.now();
    return now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
  }

  private synchronized void add() throws Exception {
    int i = nodes.size();
    String name = KINDS[i % KINDS.length] + i / KINDS.length;
    nodes.add(addVariable(name, TYPES[i % TYPES.length]));
    names.add('"' + prefix + '/' + name + '"');
    Path partial = truth.resolveSibling(truth.getFileName() + ".partial");
    Files.writeString(partial, names.toString());
    Files.move(partial, truth, java.nio.file.StandardCopyOption.ATOMIC_MOVE);
    publishFrom(i);
  }

  private UaVariableNode addVariable(String name, NodeId type) {
    UaVariableNode node =
        UaVariableNode.build(
            getNodeContext(),
            b ->
                b.setNodeId(newNodeId(name))
                    .setAccessLevel(AccessLevel.READ_ONLY)
                    .setUserAccessLevel(AccessLevel.READ_ONLY)
                    .setBrowseName(newQualifiedName(name))
                    .setDisplayName(LocalizedText.english(name))
                    .setDataType(type)
                    .setTypeDefinition(NodeIds.BaseDataVariableType)
                    .build());
    getNodeManager().addNode(node);
    node.addReference(
        new Reference(
            node.getNodeId(), NodeIds.Organizes, NodeIds.ObjectsFolder.expanded(), false));
    items.put(node.getNodeId(), new java.util.HashSet<>());
    return node;
  }

  /** This round's value of every node from {@code first} on: in the truth before anybody can see it. */
  private synchronized void publishFrom(int first) throws Exception {
    long time = Math.max(now(), last + 1);
    last = time;
    DateTime source = new DateTime(Instant.EPOCH.plus(time, java.time.temporal.ChronoUnit.MICROS));
    ByteBuffer rows =
        ByteBuffer.allocate(ROW * (nodes.size() - first)).order(ByteOrder.LITTLE_ENDIAN);
    StringBuilder lines = new StringBuilder();
    List<DataValue> values = new ArrayList<>();
    for (int i = first; i < nodes.size(); i++) {
      int number = i / KINDS.length;
      long m = round * 100 + number;
      boolean uncertain = number == 7 && round % 3 == 1;
      long status = uncertain ? StatusCodes.Uncertain_LastUsableValue : 0;
      Object value =
          switch (i % KINDS.length) {
            case 0 -> m / 8.0;
            case 1 -> m / 4.0f;
            case 2 -> (int) -m;
            case 3 -> round % 2 == 1;
            default -> "step " + m;
          };
      values.add(new DataValue(new Variant(value), new StatusCode(status), source));
      if (value instanceof String text) {
        lines.append(
            String.format("[\"opcua\",%d,%d,\"%s\",%d,%d]\n", i, time, text, status, now()));
        continue;
      }
      double number64 =
          value instanceof Boolean on ? (on ? 1.0 : 0.0) : ((Number) value).doubleValue();
      rows.putInt(i).putInt((int) status).putLong(time).putDouble(number64).putLong(now());
    }
    numbers.write(rows.array(), 0, rows.position());
    texts.write(lines.toString().getBytes(StandardCharsets.UTF_8));
    for (int i = first; i < nodes.size(); i++) {
      UaVariableNode node = nodes.get(i);
      DataValue value = values.get(i - first);
      node.setValue(value);
      items.get(node.getNodeId()).forEach(item -> item.setValue(value));
    }
  }

  private synchronized void publish() throws Exception {
    round++;
    publishFrom(0);
    DateTime source = new DateTime(Instant.EPOCH.plus(last, java.time.temporal.ChronoUnit.MICROS));
    publishValue(drive, new Variant(driveOfRound(round)), source);
    publishValue(drives, drivesOfRound(), source);
    publishValue(matrix, matrixOfRound(), source);
  }

  private void publishValue(UaVariableNode node, Variant variant, DateTime source) {
    DataValue value = new DataValue(variant, StatusCode.GOOD, source);
    node.setValue(value);
    items.get(node.getNodeId()).forEach(item -> item.setValue(value));
  }

  /** The structure: see tests/peers.py. */
  private void addDrive() {
    var modes = new EnumField[3];
    for (int i = 0; i < modes.length; i++) {
      modes[i] = new EnumField((long) i, LocalizedText.NULL_VALUE, LocalizedText.NULL_VALUE, "mode" + i);
    }
    addType("DriveMode", NodeIds.Enumeration, new EnumDefinition(modes));
    addStructure(
        "Motor",
        NodeIds.Structure,
        StructureType.Structure,
        field("Speed", NodeIds.Double),
        field("Name", NodeIds.String));
    addStructure(
        "Extra",
        NodeIds.Union,
        StructureType.Union,
        field("Number", NodeIds.Double),
        field("Text", NodeIds.String));
    addStructure(
        "Drive",
        NodeIds.Structure,
        StructureType.StructureWithOptionalFields,
        field("On", NodeIds.Boolean),
        field("Mode", typeId("DriveMode")),
        field("Motor", typeId("Motor")),
        new StructureField("Torque", LocalizedText.NULL_VALUE, NodeIds.Double, -1, null, uint(0), true),
        new StructureField("Temperatures", LocalizedText.NULL_VALUE, NodeIds.Double, 1, null, uint(0), false),
        field("Extra", typeId("Extra")));
    types = getServer().updateDataTypeTree();
    for (String name : List.of("Motor", "Extra", "Drive")) {
      getServer()
          .getDynamicDataTypeManager()
          .registerType(
              typeId(name),
              DynamicCodecFactory.create(types.getDataType(typeId(name)), types),
              newNodeId(name + "Encoding"),
              null,
              null);
    }
    drive = addVariable("Drive", typeId("Drive"));
    drive.setValue(new DataValue(new Variant(driveOfRound(round))));
    drives = addVariable("Drives", typeId("Drive"));
    drives.setValueRank(1);
    drives.setArrayDimensions(new UInteger[] {uint(2)});
    drives.setValue(new DataValue(drivesOfRound()));
    matrix = addVariable("Matrix", NodeIds.Double);
    matrix.setValueRank(2);
    matrix.setArrayDimensions(new UInteger[] {uint(2), uint(3)});
    matrix.setValue(new DataValue(matrixOfRound()));
  }

  private Variant drivesOfRound() {
    return new Variant(new ExtensionObject[] {driveOfRound(round), driveOfRound(round + 1)});
  }

  private Variant matrixOfRound() {
    Double[][] rows = new Double[2][3];
    for (int k = 0; k < 6; k++) {
      rows[k / 3][k % 3] = round + k / 8.0;
    }
    return new Variant(new Matrix(rows));
  }

  private NodeId typeId(String name) {
    return newNodeId(name + "Type");
  }

  private static StructureField field(String name, NodeId type) {
    return new StructureField(name, LocalizedText.NULL_VALUE, type, -1, null, uint(0), false);
  }

  private void addStructure(String name, NodeId above, StructureType type, StructureField... fields) {
    NodeId encoding = newNodeId(name + "Encoding");
    addType(name, above, new StructureDefinition(encoding, above, type, fields));
    UaObjectNode node =
        UaObjectNode.build(
            getNodeContext(),
            b ->
                b.setNodeId(encoding)
                    .setBrowseName(new QualifiedName(0, "Default Binary"))
                    .setDisplayName(LocalizedText.english("Default Binary"))
                    .setTypeDefinition(NodeIds.DataTypeEncodingType)
                    .build());
    getNodeManager().addNode(node);
    node.addReference(
        new Reference(encoding, NodeIds.HasEncoding, typeId(name).expanded(), false));
  }

  private void addType(String name, NodeId above, DataTypeDefinition definition) {
    UaDataTypeNode node =
        new UaDataTypeNode(
            getNodeContext(),
            typeId(name),
            newQualifiedName(name),
            LocalizedText.english(name),
            LocalizedText.NULL_VALUE,
            uint(0),
            uint(0),
            null,
            null,
            null,
            false,
            definition);
    getNodeManager().addNode(node);
    node.addReference(new Reference(node.getNodeId(), NodeIds.HasSubtype, above.expanded(), false));
  }

  private DynamicStructType structure(String name, Object... members) {
    var named = new LinkedHashMap<String, Object>();
    for (int i = 0; i < members.length; i += 2) {
      if (members[i + 1] != null) { // Milo encodes null as a value
        named.put((String) members[i], members[i + 1]);
      }
    }
    return new DynamicStructType(types.getDataType(typeId(name)), named);
  }

  private ExtensionObject driveOfRound(long round) {
    boolean odd = round % 2 == 1;
    String name = "step " + round;
    Object value =
        structure(
            "Drive",
            "On",
            odd,
            "Mode",
            new DynamicEnumType(types.getDataType(typeId("DriveMode")), (int) (round % 3)),
            "Motor",
            structure("Motor", "Speed", (double) round, "Name", name),
            "Torque",
            odd ? round + 0.5 : null,
            "Temperatures",
            new Double[] {round + 0.0, round + 0.25, round + 0.5, round + 0.75},
            "Extra",
            new DynamicUnionType(
                types.getDataType(typeId("Extra")),
                odd
                    ? new DynamicUnionType.UnionValue("Text", name)
                    : new DynamicUnionType.UnionValue("Number", (double) round)));
    return ExtensionObject.encode(
        getServer().getDynamicEncodingContext(), (UaStructuredType) value);
  }

  @Override
  public synchronized void onDataItemsCreated(List<DataItem> created) {
    for (DataItem item : created) {
      Set<DataItem> of = items.get(item.getReadValueId().getNodeId());
      if (of != null) {
        of.add(item);
        Stream.concat(nodes.stream(), Stream.of(drive, drives, matrix))
            .filter(n -> n.getNodeId().equals(item.getReadValueId().getNodeId()))
            .forEach(n -> item.setValue(n.getValue()));
      }
    }
  }

  @Override
  public void onDataItemsModified(List<DataItem> modified) {}

  @Override
  public synchronized void onDataItemsDeleted(List<DataItem> deleted) {
    deleted.forEach(
        item -> items.getOrDefault(item.getReadValueId().getNodeId(), Set.of()).remove(item));
  }

  @Override
  public void onMonitoringModeChanged(List<MonitoredItem> changed) {}

  private static OpcUaServer server(int port, Path pki) throws Exception {
    X509Certificate certificate =
        (X509Certificate)
            CertificateFactory.getInstance("X.509")
                .generateCertificate(Files.newInputStream(pki.resolve("cert.der")));
    KeyPair key =
        new KeyPair(
            certificate.getPublicKey(),
            KeyFactory.getInstance("RSA")
                .generatePrivate(
                    new PKCS8EncodedKeySpec(
                        Base64.getMimeDecoder()
                            .decode(Files.readString(pki.resolve("key.pem")).replaceAll("-----.*", "")))));
    var factory =
        new RsaSha256CertificateFactory() {
          @Override
          protected KeyPair createRsaSha256KeyPair() {
            return key;
          }

          @Override
          protected X509Certificate[] createRsaSha256CertificateChain(KeyPair keyPair) {
            return new X509Certificate[] {certificate};
          }
        };
    var group =
        DefaultApplicationGroup.createAndInitialize(
            new MemoryTrustListManager(),
            new MemoryCertificateStore(),
            factory,
            new CertificateValidator.InsecureCertificateValidator());
    var endpoint =
        EndpointConfig.newBuilder()
            .setBindAddress("127.0.0.1")
            .setHostname("127.0.0.1")
            .setBindPort(port)
            .setCertificate(certificate)
            .addTokenPolicies(OpcUaServerConfig.USER_TOKEN_POLICY_ANONYMOUS);
    var secure =
        endpoint
            .copy()
            .setSecurityPolicy(SecurityPolicy.Basic256Sha256)
            .setSecurityMode(MessageSecurityMode.SignAndEncrypt);
    OpcUaServerConfig config =
        OpcUaServerConfig.builder()
            .setApplicationUri("urn:plantlog:tests:server")
            .setApplicationName(LocalizedText.english("Milo"))
            .setEndpoints(Set.of(endpoint.build(), secure.build()))
            .setCertificateManager(
                new DefaultCertificateManager(new MemoryCertificateQuarantine(), group))
            .build();
    return new OpcUaServer(
        config,
        profile -> new OpcTcpServerTransport(OpcTcpServerTransportConfig.newBuilder().build()));
  }

  public static void main(String[] arguments) throws Exception {
    Path folder = Path.of(arguments[1]);
    OpcUaServer server = server(Integer.parseInt(arguments[0]), folder.resolve("pki"));
    var namespace = new MiloServer(server, folder, arguments[2], Integer.parseInt(arguments[3]));
    namespace.startup();
    server.startup().get();
    namespace.addDrive();
    var conditions = new Conditions(server, namespace.getNodeContext(), 2, folder);
    var timer = Executors.newSingleThreadScheduledExecutor();
    Runnable publish =
        () -> {
          try {
            namespace.publish();
          } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
          }
        };
    long interval = Long.parseLong(arguments[4]);
    ScheduledFuture<?> publishing = null;
    String answer = "ready";
    var commands = new BufferedReader(new InputStreamReader(System.in));
    for (String line = "rate " + interval; line != null; line = commands.readLine()) {
      String[] words = line.split(" ");
      long value = words.length > 1 ? Long.parseLong(words[1]) : 0;
      switch (words[0]) {
        case "add" -> namespace.add();
        case "high" -> conditions.set(value, 80);
        case "hot" -> conditions.set(value, 97);
        case "normal" -> conditions.set(value, 50);
        case "simple" -> conditions.fireSimple(value);
        case "required" -> conditions.requireRefresh();
        case "burst" -> {
          synchronized (namespace) {
            for (long i = 0; i < value; i++) {
              namespace.publish();
            }
          }
        }
        case "rate" -> {
          if (publishing != null) {
            publishing.cancel(false);
          }
          publishing =
              value == 0 ? null : timer.scheduleAtFixedRate(publish, 0, value, TimeUnit.MILLISECONDS);
        }
        default -> throw new IllegalArgumentException(line);
      }
      System.out.println(answer);
      answer = "done";
    }
    System.exit(0);
  }
}
