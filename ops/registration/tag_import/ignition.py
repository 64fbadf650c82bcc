"""Tags of Ignition: the JSON file that the Tag Browser exports (Ignition 8, "Exporting and Importing Tags").

The properties are those of "Tag Properties" in the manual, alarms those of "Tag Alarm Properties". Folders become parts
of names. UDT instances are expanded by their definitions and parameters, which the export must contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from core.config.addresses import node_address
from core.config.sources import ChannelKind
from core.errors import OperationError
from ops.registration.tag_import.imported import Imported, ImportedSource, NotImported, read_json

_Tag: TypeAlias = Mapping[str, Any]

_TYPES = "_types_"  # the folder of UDT definitions
_NUMBERS = ("Int1", "Int2", "Int4", "Int8", "Float4", "Float8")
_KINDS: Mapping[str, ChannelKind] = {
    **dict.fromkeys(_NUMBERS, "analog"),
    "Boolean": "discrete",
    **dict.fromkeys(("String", "DateTime"), "text"),
}
_SUPPORTED = (
    *("name", "tagType", "valueSource", "opcServer", "opcItemPath", "dataType", "enabled", "engUnit", "engLow"),
    *("engHigh", "documentation", "deadband", "deadbandMode", "scaleMode", "alarms", "parameters", "typeId"),
)
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_MAX_DEPTH = 32  # of folders, instances in instances, and definitions of definitions
_PRIORITIES = {"Diagnostic": "low", "Low": "low", "Medium": "medium", "High": "high", "Critical": "critical"}
_RANKS = tuple(_PRIORITIES)
_OF_ALARMS = (
    "name",
    "mode",
    "setpointA",
    "priority",
    "deadband",
    "timeOnDelaySeconds",
    "timeOffDelaySeconds",
    "enabled",
)
# A channel has one of each for all of its limits: (property, column, unit of the column)
_SHARED = (
    ("deadband", "alarm_deadband", ""),
    ("timeOnDelaySeconds", "alarm_delay", "s"),
    ("timeOffDelaySeconds", "alarm_off_delay", "s"),
)


def read(path: Path, name: str, address: str, server: str | None) -> Imported:
    """The tags of one OPC server as a source. Raises OperationError for another kind of file."""
    root = read_json(path)
    if not isinstance(root, dict) or not isinstance(root.get("tags"), list):
        raise OperationError(f"{path} is no tag export of Ignition: that is an object with tags")
    imported = Imported()
    source = ImportedSource(name, "opcua", {"address": address})
    imported.sources.append(source)
    tags = list(_Tree(path, root, imported).tags())
    servers = sorted({str(tag.get("opcServer")) for _, tag in tags if tag.get("opcServer") and _is_opc(tag)})
    if len(servers) > 1 and server not in servers:
        raise OperationError(f"{path} has tags of the OPC servers {', '.join(servers)}: choose one by --server")
    for where, tag in tags:
        location = f"{path}: {where}"
        try:
            if len(servers) > 1 and _is_opc(tag) and tag.get("opcServer") != server:
                raise NotImported(f"a tag of OPC server {tag.get('opcServer')!r}")
            columns, dropped = _columns(tag)
            source.add(where, columns)
        except NotImported as reason:
            imported.leave_out(location, str(reason))
            continue
        for setting in dropped:
            imported.drop(location, setting)
    return imported


class _Tree:
    """The tags of an export, with UDT instances expanded."""

    def __init__(self, path: Path, root: _Tag, imported: Imported) -> None:
        self._path = path
        self._root = root
        self._imported = imported
        self._types: dict[str, _Tag] = {}  # by the path below _types_

    def tags(self) -> Iterator[tuple[str, _Tag]]:
        """Each atomic tag with its path."""
        self._find_types(self._root, None, 0)
        yield from self._walk(self._root, "", {}, 0)

    def _find_types(self, tag: _Tag, below: str | None, depth: int) -> None:
        for child in _children(tag) if depth < _MAX_DEPTH else ():
            name = str(child.get("name", ""))
            inside = "" if name == _TYPES else None if below is None else f"{below}/{name}".lstrip("/")
            if child.get("tagType") == "UdtType":
                self._types[name if inside is None else inside] = child
            else:
                self._find_types(child, inside, depth + 1)

    def _walk(self, tag: _Tag, path: str, parameters: Mapping[str, Any], depth: int) -> Iterator[tuple[str, _Tag]]:
        for child in _children(tag):
            name = str(child.get("name", ""))
            where = f"{path}/{name}".lstrip("/")
            kind = child.get("tagType", "Folder" if "tags" in child else "AtomicTag")
            if name == _TYPES or kind == "UdtType":
                continue
            try:
                if depth >= _MAX_DEPTH:
                    raise NotImported("folders nested too deep")
                if kind == "AtomicTag":
                    yield where, _bound(child, {**parameters, "TagName": name})
                elif kind == "UdtInstance":
                    defined = self._defined(child, depth)
                    inner = {**parameters, **_parameters(defined, parameters), "InstanceName": name}
                    yield from self._walk(defined, where, inner, depth + 1)
                elif kind in ("Folder", "Provider"):
                    yield from self._walk(child, where, parameters, depth + 1)
                else:
                    raise NotImported(f"tagType {kind!r}")
            except NotImported as reason:
                self._imported.leave_out(f"{self._path}: {where}", str(reason))

    def _defined(self, tag: _Tag, depth: int) -> _Tag:
        """An instance or definition with all it has from its definition. Raises NotImported."""
        name = str(tag.get("typeId") or "")
        if not name:
            return tag
        if name not in self._types or depth >= _MAX_DEPTH:
            raise NotImported(f"an instance of {name!r}, whose definition is not in the file: export it, too")
        return _merged(self._defined(self._types[name], depth + 1), tag)


def _children(tag: _Tag) -> Sequence[_Tag]:
    children = tag.get("tags")
    return [child for child in children if isinstance(child, dict)] if isinstance(children, list) else []


def _merged(base: _Tag, over: _Tag) -> _Tag:
    """``over`` overrides properties, parameters and, by name, the tags of ``base``."""
    merged = {**base, **over}
    if parameters := [
        own_parameters for tag in (base, over) if isinstance(own_parameters := tag.get("parameters"), dict)
    ]:
        merged["parameters"] = {name: value for own_parameters in parameters for name, value in own_parameters.items()}
    overrides = {str(child.get("name")): child for child in _children(over)}
    members = [_merged(child, overrides.pop(str(child.get("name")), {})) for child in _children(base)]
    if members or overrides:
        merged["tags"] = [*members, *overrides.values()]
    return merged


def _parameters(tag: _Tag, outer: Mapping[str, Any]) -> dict[str, Any]:
    listed = tag.get("parameters")
    parameters: Mapping[str, Any] = listed if isinstance(listed, dict) else {}
    values = {name: value.get("value") if isinstance(value, dict) else value for name, value in parameters.items()}
    return {name: _resolved(value, outer) for name, value in values.items()}


def _bound(tag: _Tag, parameters: Mapping[str, Any]) -> _Tag:
    """A tag with the values of bound properties. Raises NotImported."""
    return {name: _resolved(value, parameters) for name, value in tag.items()}


def _resolved(value: Any, parameters: Mapping[str, Any]) -> Any:
    if not isinstance(value, dict) or "bindType" not in value:
        return value
    binding = value.get("binding")
    if value["bindType"] != "parameter" or not isinstance(binding, str):
        raise NotImported(f"a binding of type {value['bindType']!r}: only parameters are replaced")

    def parameter(match: re.Match[str]) -> str:
        value = parameters.get(match[1])
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise NotImported(f"the parameter {match[0]}, which has no value")
        return str(value)

    return _PLACEHOLDER.sub(parameter, binding)


def _is_opc(tag: _Tag) -> bool:
    return tag.get("valueSource") == "opc"


def _columns(tag: _Tag) -> tuple[dict[str, str], list[str]]:
    """The columns of a tag list, and the settings that are not carried over. Raises NotImported."""
    if not _is_opc(tag):
        raise NotImported(f"valueSource {tag.get('valueSource', 'memory')!r}: plantlog reads from OPC servers")
    if tag.get("enabled") is False:
        raise NotImported("a tag that is not enabled")
    if (scaling := tag.get("scaleMode", "Off")) != "Off":
        raise NotImported(f"scaleMode {scaling!r}: plantlog stores the values of an OPC UA server as they are")
    data_type = str(tag.get("dataType", "Int4"))
    if data_type not in _KINDS:
        raise NotImported(f"dataType {data_type!r}, which plantlog cannot read")
    address = str(tag.get("opcItemPath") or "")
    try:
        node_address.parse(address)
    except ValueError:
        raise NotImported(f"opcItemPath {address!r}, which is no node id as in ns=2;s=Tank1") from None
    columns = {"address": address, "kind": _KINDS[data_type], "unit": _text(tag.get("engUnit"))}
    columns["description"] = _text(tag.get("documentation"))
    dropped = [f"{name}, which plantlog does not have" for name in tag if name not in _SUPPORTED]
    low, high = _number(tag.get("engLow")), _number(tag.get("engHigh"))
    if low is not None and high is not None and low >= high:
        dropped.append("engLow, which is not below engHigh")
    else:
        columns |= {name: str(end) for name, end in (("lo", low), ("hi", high)) if end is not None}
    deadband, mode = _number(tag.get("deadband")), tag.get("deadbandMode", "Absolute")
    if deadband and mode == "Absolute":
        columns["deadband"] = str(deadband)
    elif deadband and mode != "Off":
        dropped.append(f"deadbandMode {mode!r}: every change is stored")
    return columns | _alarm_columns(tag.get("alarms"), columns["kind"], dropped), dropped


def _text(value: Any) -> str:
    return " ".join(str(value).split()) if value is not None else ""


def _number(value: Any) -> float | None:
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        raise NotImported(f"{value!r}, which is no number") from None


def _alarm_columns(alarms: Any, kind: str, dropped: list[str]) -> dict[str, str]:
    """The columns. What has no column goes to ``dropped``."""
    by_mode: dict[str, list[tuple[float, Mapping[str, Any]]]] = {"AboveValue": [], "BelowValue": []}
    for alarm in alarms if isinstance(alarms, list) else ():
        if not isinstance(alarm, dict):
            continue
        mode, setpoint = str(alarm.get("mode", "Equality")), alarm.get("setpointA", 0)
        usable = mode in by_mode and isinstance(setpoint, int | float) and not isinstance(setpoint, bool)
        if alarm.get("enabled", True) is not True or not usable or kind == "text":
            dropped.append(f"an alarm of mode {mode!r}, not enabled, or without a fixed limit")
        else:
            by_mode[mode].append((float(setpoint), alarm))
    highs = sorted(by_mode["AboveValue"], key=lambda limit: limit[0])
    lows = sorted(by_mode["BelowValue"], key=lambda limit: -limit[0])
    columns: dict[str, str] = {}
    used: list[Mapping[str, Any]] = []
    for names, levels in ((("alarm_hi", "alarm_hihi"), highs), (("alarm_lo", "alarm_lolo"), lows)):
        for name, (setpoint, alarm) in zip(names, levels, strict=False):
            if str(setpoint) in columns.values():
                dropped.append("an alarm with the limit of another one")
                continue
            columns[name] = str(setpoint)
            used.append(alarm)
        if len(levels) > len(names):
            dropped.append("a third alarm limit on one side")
    return columns | _of_all_limits(used, dropped)


def _of_all_limits(alarms: Sequence[Mapping[str, Any]], dropped: list[str]) -> dict[str, str]:
    """Attributes common to the limits of a channel: the highest priority, delays and deadband."""
    if not alarms:
        return {}
    dropped += [f"{name} of an alarm" for alarm in alarms for name in alarm if name not in _OF_ALARMS]
    priorities = [str(alarm.get("priority", "Low")) for alarm in alarms]
    ranks = sorted(_RANKS.index(priority) for priority in priorities if priority in _RANKS)
    if len(set(priorities)) > 1 or len(ranks) < len(priorities) or "Diagnostic" in priorities:
        dropped.append("priorities of alarms: a channel has one, the highest")
    columns = {"alarm_priority": _PRIORITIES[_RANKS[ranks[-1]]] if ranks else "low"}
    for name, column, unit in _SHARED:
        values = {alarm.get(name, 0) for alarm in alarms if isinstance(alarm.get(name, 0), int | float)}
        if len(values) > 1 or [a for a in alarms if not isinstance(a.get(name, 0), int | float)]:
            dropped.append(f"{name} of alarms that differ, or are not fixed")
        elif value := values.pop():
            columns[column] = f"{value}{unit}"
    return columns
