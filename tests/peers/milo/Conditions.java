// Conditions of a server by Eclipse Milo, which has their types, event queues and filters; their methods are here. What
// the commands are: see tests/peers.py.

import static org.eclipse.milo.opcua.stack.core.types.builtin.unsigned.Unsigned.ushort;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.UUID;
import org.eclipse.milo.opcua.sdk.core.Reference;
import org.eclipse.milo.opcua.sdk.server.OpcUaServer;
import org.eclipse.milo.opcua.sdk.server.items.MonitoredEventItem;
import org.eclipse.milo.opcua.sdk.server.model.objects.AcknowledgeableConditionType;
import org.eclipse.milo.opcua.sdk.server.model.objects.AlarmConditionTypeNode;
import org.eclipse.milo.opcua.sdk.server.model.objects.BaseEventTypeNode;
import org.eclipse.milo.opcua.sdk.server.model.objects.ConditionType;
import org.eclipse.milo.opcua.sdk.server.nodes.UaMethodNode;
import org.eclipse.milo.opcua.sdk.server.nodes.UaNodeContext;
import org.eclipse.milo.opcua.sdk.server.nodes.factories.NodeFactory;
import org.eclipse.milo.opcua.stack.core.NodeIds;
import org.eclipse.milo.opcua.stack.core.StatusCodes;
import org.eclipse.milo.opcua.stack.core.UaException;
import org.eclipse.milo.opcua.stack.core.types.builtin.ByteString;
import org.eclipse.milo.opcua.stack.core.types.builtin.DateTime;
import org.eclipse.milo.opcua.stack.core.types.builtin.LocalizedText;
import org.eclipse.milo.opcua.stack.core.types.builtin.NodeId;
import org.eclipse.milo.opcua.stack.core.types.builtin.StatusCode;
import org.eclipse.milo.opcua.stack.core.types.builtin.unsigned.UInteger;
import org.eclipse.milo.opcua.stack.core.util.NonceUtil;

class Conditions {
  private static final double HIGH = 70;
  private static final double HOT = 95;

  private record Condition(AlarmConditionTypeNode node, int source, double limit) {}

  private final List<Condition> conditions = new ArrayList<>();
  private final OpcUaServer server;
  private final UaNodeContext context;
  private final int namespace;
  private long events = 0;

  Conditions(OpcUaServer server, UaNodeContext context, int namespace, Path folder) {
    this.server = server;
    this.context = context;
    this.namespace = namespace;
    Path log = folder.resolve("events.jsonl");
    server.getEventNotifier().register(event -> log(log, event));
    var method =
        (UaMethodNode)
            server
                .getAddressSpaceManager()
                .getManagedNode(NodeIds.ConditionType_ConditionRefresh)
                .orElseThrow();
    method.setInvocationHandler(
        new ConditionType.ConditionRefreshMethod(method) {
          @Override
          protected void invoke(InvocationContext call, UInteger subscription) throws UaException {
            refresh(call, subscription);
          }
        });
  }

  private static void log(Path log, BaseEventTypeNode event) {
    String id = HexFormat.of().formatHex(event.getEventId().bytesOrEmpty());
    String type = "ns=0;" + event.getEventType().toParseableString();
    try {
      Files.writeString(
          log,
          String.format("{\"id\": \"%s\", \"type\": \"%s\"}\n", id, type),
          StandardOpenOption.CREATE,
          StandardOpenOption.APPEND);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private AlarmConditionTypeNode condition(String name, String source) throws UaException {
    var node =
        (AlarmConditionTypeNode)
            new NodeFactory(context)
                .createNode(new NodeId(namespace, name), NodeIds.AlarmConditionType);
    var variable = new NodeId(namespace, source);
    node.addReference(
        new Reference(node.getNodeId(), NodeIds.HasCondition, variable.expanded(), false));
    node.setEventType(NodeIds.AlarmConditionType);
    node.setSourceNode(variable);
    node.setSourceName(source);
    node.setSeverity(ushort(300));
    node.setConditionName(name);
    node.setBranchId(NodeId.NULL_VALUE);
    node.setQuality(StatusCode.GOOD);
    node.getEnabledStateNode().setId(true);
    node.getAckedStateNode().setId(true);
    node.getActiveStateNode().setId(false);
    node.setRetain(false);
    UaMethodNode method = node.getAcknowledgeMethodNode();
    method.setInvocationHandler(
        new AcknowledgeableConditionType.AcknowledgeMethod(method) {
          @Override
          protected void invoke(InvocationContext call, ByteString id, LocalizedText comment)
              throws UaException {
            acknowledge(node, id, comment);
          }
        });
    return node;
  }

  /** OPC 10000-9, 5.7.3. */
  private synchronized void acknowledge(
      AlarmConditionTypeNode condition, ByteString id, LocalizedText comment) throws UaException {
    if (!id.equals(condition.getEventId())) {
      throw new UaException(StatusCodes.Bad_EventIdUnknown);
    }
    if (condition.getAckedStateNode().getId()) {
      throw new UaException(StatusCodes.Bad_ConditionBranchAlreadyAcked);
    }
    condition.getAckedStateNode().setId(true);
    condition.setComment(comment);
    fire(condition, "acknowledged");
  }

  /** OPC 10000-9, 5.5.7: to the items of this subscription only. */
  private synchronized void refresh(
      ConditionType.ConditionRefreshMethod.InvocationContext call, UInteger id) throws UaException {
    var subscription =
        call.getSession().orElseThrow().getSubscriptionManager().getSubscription(id);
    if (subscription == null) {
      throw new UaException(StatusCodes.Bad_SubscriptionIdInvalid);
    }
    BaseEventTypeNode start = event(NodeIds.RefreshStartEventType, "refresh");
    BaseEventTypeNode end = event(NodeIds.RefreshEndEventType, "refresh");
    for (var item : subscription.getMonitoredItems().values()) {
      if (item instanceof MonitoredEventItem events) {
        events.onEvent(start);
        conditions.stream().filter(c -> c.node.getRetain()).forEach(c -> events.onEvent(c.node));
        events.onEvent(end);
      }
    }
    start.delete();
    end.delete();
  }

  /** A new value of Double0 …: the alarms that become active or inactive by it have an event each. */
  synchronized void set(long source, double value) throws UaException {
    for (int k = conditions.size() / 2; k <= source; k++) {
      conditions.add(new Condition(condition("Limit" + k, "Double" + k), k, HIGH));
      conditions.add(new Condition(condition("Hot" + k, "Double" + k), k, HOT));
    }
    for (Condition condition : conditions) {
      boolean active = value > condition.limit;
      if (condition.source == source && active != condition.node.getActiveStateNode().getId()) {
        condition.node.getActiveStateNode().setId(active);
        if (active) {
          condition.node.getAckedStateNode().setId(false);
        }
        fire(condition.node, active ? "active" : "inactive");
      }
    }
  }

  private void fire(AlarmConditionTypeNode condition, String message) {
    condition.setRetain(
        condition.getActiveStateNode().getId() || !condition.getAckedStateNode().getId());
    stamp(condition, message);
    server.getEventNotifier().fire(condition);
  }

  /** All at once: to make one takes longer. */
  synchronized void fireSimple(long count) throws UaException {
    List<BaseEventTypeNode> made = new ArrayList<>();
    for (long k = 0; k < count; k++) {
      made.add(event(NodeIds.BaseEventType, "event " + ++events));
    }
    made.forEach(server.getEventNotifier()::fire);
    made.forEach(BaseEventTypeNode::delete);
  }

  synchronized void requireRefresh() throws UaException {
    BaseEventTypeNode event = event(NodeIds.RefreshRequiredEventType, "refresh required");
    server.getEventNotifier().fire(event);
    event.delete();
  }

  private BaseEventTypeNode event(NodeId type, String message) throws UaException {
    var node = server.getEventFactory().createEvent(new NodeId(1, UUID.randomUUID()), type);
    node.setEventType(type);
    node.setSourceNode(NodeIds.Server);
    node.setSourceName("Server");
    node.setSeverity(ushort(100));
    stamp(node, message);
    return node;
  }

  private static void stamp(BaseEventTypeNode event, String message) {
    event.setEventId(NonceUtil.generateNonce(16));
    event.setTime(DateTime.now());
    event.setMessage(LocalizedText.english(message));
  }
}
