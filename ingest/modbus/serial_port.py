"""A serial line as an asyncio transport, for this process alone (termios(3), ioctl_tty(2))."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import grp
import os
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from core.accounts import account_name
from core.config.addresses.modbus_address import ModbusAddress
from ingest.modbus.failures import ConnectionLost

_PARITY = {"N": 0, "E": termios.PARENB, "O": termios.PARENB | termios.PARODD}
_THIS_COLLECTOR = "another source of this collector"
_PSEUDO_TERMINALS = range(136, 144)  # major numbers (Documentation/admin-guide/devices.txt of Linux)


class SerialTransport(asyncio.WriteTransport):
    """Transport of an open serial device."""

    def __init__(self, device: str, fd: int, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._device = device
        self._fd = fd
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._unsent = b""
        self._loop.add_reader(fd, self._readable)
        protocol.connection_made(self)

    def _readable(self) -> None:
        buffer = self._protocol.get_buffer(-1)
        try:
            count = os.readv(self._fd, (buffer,))
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(error)
            return
        if count:
            self._protocol.buffer_updated(count)
        else:
            self._lose(OSError(0, "it was disconnected"))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send ``data``, in the background if the driver's buffer is full."""
        self._unsent += data
        self._writable()

    def _writable(self) -> None:
        if self._fd < 0:
            return
        try:
            self._unsent = self._unsent[os.write(self._fd, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(error)
            return
        if self._unsent:
            self._loop.add_writer(self._fd, self._writable)
        else:
            self._loop.remove_writer(self._fd)

    def _lose(self, error: OSError) -> None:
        self._close(ConnectionLost(f"serial device {self._device} is gone: {error.strerror}"))

    def abort(self) -> None:
        """Close the device; drop what was not sent."""
        self._close(None)

    def _close(self, error: ConnectionLost | None) -> None:
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        self._loop.remove_reader(fd)
        self._loop.remove_writer(fd)
        with suppress(termios.error):
            termios.tcflush(fd, termios.TCIOFLUSH)  # close() would wait until all is sent
        os.close(fd)
        self._loop.call_soon(self._protocol.connection_lost, error)


def open_serial(address: ModbusAddress, protocol: asyncio.BufferedProtocol) -> SerialTransport:
    """Open the device for this process alone, with the line settings of ``address``. Raises ConnectionLost."""
    device = address.endpoint
    fd = -1
    try:
        # O_NONBLOCK: otherwise it may wait for a carrier
        fd = os.open(device, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.ioctl(fd, termios.TIOCEXCL)
        if any(
            process != _THIS_COLLECTOR for process in _holders(device)
        ):  # of processes without a lock: each would read a part of the bytes
            fcntl.ioctl(fd, termios.TIOCNXCL)
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        _configure(fd, address)
        return SerialTransport(device, fd, protocol)
    except (OSError, termios.error) as error:
        if fd >= 0:
            os.close(fd)
        raise ConnectionLost(f"connect: {_reason(device, error)}") from error


def _configure(fd: int, address: ModbusAddress) -> None:
    """Set raw mode: 8 data bits, no control characters, no flow control."""
    speed = getattr(termios, f"B{address.baud}")
    cflag = termios.CS8 | termios.CREAD | termios.CLOCAL | (termios.CSTOPB if address.stop == 2 else 0)
    if os.major(os.fstat(fd).st_rdev) not in _PSEUDO_TERMINALS:  # these refuse a parity
        cflag |= _PARITY[address.parity]
    iflag = termios.INPCK if address.parity != "N" else 0  # a wrong character is read as NUL
    control: list[bytes | int] = [b"\0"] * 32
    control[termios.VMIN], control[termios.VTIME] = 1, 0
    termios.tcflush(fd, termios.TCIOFLUSH)
    termios.tcsetattr(fd, termios.TCSANOW, [iflag, 0, cflag, 0, speed, speed, control])


def _reason(device: str, error: Exception) -> str:
    """Reason why a device can't be used, for people."""
    number = error.args[0] if error.args else 0
    match number:
        case errno.ENOENT | errno.ENXIO | errno.ENODEV:
            return f"there is no serial device {device}"
        case errno.EACCES | errno.EPERM:
            return _forbidden(device)
        case errno.EBUSY | errno.EAGAIN:
            holders = ", ".join(_holders(device))
            return f"serial device {device} is used by {holders or 'another process'}"
        case errno.ENOTTY | errno.EINVAL | errno.EISDIR:
            return f"{device} is no serial device with these line settings"
        case errno.EIO:
            return f"there is no serial port behind {device}"
    return f"{device}: {os.strerror(number)}"


def _forbidden(device: str) -> str:
    user = account_name(os.geteuid()) or str(os.geteuid())
    try:
        status = Path(device).stat()
    except OSError:
        return f"user {user} has no permission for the folder of {device}"
    group = str(status.st_gid)
    with suppress(KeyError):
        group = grp.getgrgid(status.st_gid).gr_name
    return f"user {user} has no permission for {device}: it must be a member of the group {group}"


def _holders(device: str) -> Iterator[str]:
    """The processes that have the device open, as far as /proc shows them."""
    try:
        number = Path(device).stat().st_rdev
    except OSError:
        return
    is_pseudo = os.major(number) in _PSEUDO_TERMINALS
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        with suppress(OSError):
            links = [(fd, _link(fd)) for fd in (process / "fd").iterdir()]
            if is_pseudo and any(link.endswith("/ptmx") for _, link in links):
                continue  # the process at the other end of a pseudo-terminal may have both open
            # A file elsewhere may be on a disk that does not answer
            if any(link.startswith("/dev/") and _is_device(fd, number) for fd, link in links):
                is_own = process.name == str(os.getpid())
                name = (process / "comm").read_text().strip()
                yield _THIS_COLLECTOR if is_own else f"process {process.name} ({name})"


def _link(fd: Path) -> str:
    try:
        return str(fd.readlink())
    except OSError:  # closed meanwhile
        return ""


def _is_device(fd: Path, number: int) -> bool:
    try:
        return fd.stat().st_rdev == number
    except OSError:
        return False
