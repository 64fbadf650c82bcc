"""Messages that the fuzzing of OPC UA begins with."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from asyncua import ua
from asyncua.ua.ua_binary import struct_to_binary


def seeds() -> dict[str, bytes]:
    """Messages by asyncua's encoder, and those that were captured from node-opcua's server."""
    found: dict[str, bytes] = {}
    captured = Path(__file__).parents[1] / "unit" / "golden" / "opcua"
    for file in sorted(captured.glob("*/message.hex")):
        body = bytes.fromhex(file.read_text())
        found[f"node-opcua-{file.parent.name}"] = b"\0" + body
    for name, values in _values().items():
        change = ua.DataChangeNotification(
            MonitoredItems=[ua.MonitoredItemNotification(handle, value) for handle, value in enumerate(values)]
        )
        for kind, body in ((0, _response([change])), (1, _again([change])), (3, _response([change]))):
            found[f"{('published', 'published-again', '', 'received')[kind]}-{name}"] = bytes((kind,)) + body
        found[f"history-{name}"] = b"\2" + _history_of(values)
    ended = ua.StatusChangeNotification(Status=ua.StatusCode(0x800A0000))
    found["published-status"] = b"\0" + _response([ended])
    found["published-nothing"] = b"\0" + _response([])
    event = ua.EventNotificationList(Events=[ua.EventFieldList(1, [ua.Variant("overheated")])])
    found["published-event"] = b"\0" + _response([event])
    return found


def _values() -> dict[str, list[Any]]:
    kinds = ua.VariantType
    time = datetime(2026, 9, 21, 12, 0, 0, 125000, tzinfo=UTC)
    scalars: dict[str, list[tuple[Any, Any]]] = {
        "numbers": [(1.5, kinds.Double), (2.5, kinds.Float), (-3, kinds.Int16), (2**53, kinds.Int64), (7, kinds.Byte)],
        "booleans": [(True, kinds.Boolean), (False, kinds.Boolean)],
        "texts": [("AUTO", kinds.String), ("", kinds.String), ("µ°C", kinds.String)],
        "others": [
            (time, kinds.DateTime),
            (ua.NodeId("Boiler", 2), kinds.NodeId),
            (ua.QualifiedName("Level", 2), kinds.QualifiedName),
            (ua.LocalizedText("full", "en"), kinds.LocalizedText),
            (ua.StatusCode(0x80050000), kinds.StatusCode),
            (b"\1\2", kinds.ByteString),
            (ua.Range(0.0, 10.0), kinds.ExtensionObject),
        ],
        "arrays": [([1.5, 2.5], kinds.Double), (["a", "b"], kinds.String), ([], kinds.Int32)],
    }
    found = {
        name: [ua.DataValue(ua.Variant(*one), SourceTimestamp=time, ServerTimestamp=time) for one in ones]
        for name, ones in scalars.items()
    }
    nested = ua.Variant([ua.Variant(1.5), ua.Variant("x")], kinds.Variant)
    matrix = ua.Variant([[1, 2], [3, 4]], kinds.Int32, Dimensions=[2, 2])
    found["nested"] = [ua.DataValue(nested), ua.DataValue(matrix)]
    found["bare"] = [
        ua.DataValue(None, ua.StatusCode(0x80050000)),
        ua.DataValue(ua.Variant(1.5), None),
        ua.DataValue(ua.Variant(1.5), ua.StatusCode(0x480), SourceTimestamp=time),
    ]
    alike = [ua.DataValue(ua.Variant(float(i), kinds.Double), SourceTimestamp=time) for i in range(9)]
    found["run"] = alike
    return found


def _response(data: list[Any]) -> bytes:
    response = ua.PublishResponse()
    response.Parameters.SubscriptionId = 77
    response.Parameters.AvailableSequenceNumbers = [4, 5]
    _message(response.Parameters.NotificationMessage, data)
    return bytes(struct_to_binary(response))


def _again(data: list[Any]) -> bytes:
    response = ua.RepublishResponse()
    _message(response.NotificationMessage, data)
    return bytes(struct_to_binary(response))


def _message(message: Any, data: list[Any]) -> None:
    message.SequenceNumber = 5
    message.PublishTime = datetime(2026, 9, 21, 12, tzinfo=UTC)
    message.NotificationData = data


def _history_of(values: list[Any]) -> bytes:
    response = ua.HistoryReadResponse()
    response.Results = [
        ua.HistoryReadResult(ua.StatusCode(0), b"more", ua.HistoryData(DataValues=values)),
        ua.HistoryReadResult(ua.StatusCode(0x80340000), None, None),
    ]
    return bytes(struct_to_binary(response))
