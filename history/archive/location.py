"""Location of an archive: a folder, or a bucket of S3-compatible storage, by pyarrow's file systems.

A file appears whole or not at all. In a folder it is written under another name, synchronised, and renamed; links in it
are not followed, but for reading. An object of S3 appears when its upload is complete.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from shutil import rmtree
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from core.errors import OperationError
from core.files import sync

_S3 = "s3://"
_CHUNK = 8 * 1024**2  # bytes
_CONNECT_SECONDS = 10.0
_REQUEST_SECONDS = 60.0
_ATTEMPTS = 5  # of a request that the storage throttles, within 15 s
_CANCEL_SECONDS = 10.0
_PROBES = 4  # of whether the storage answers, in the time that it may take


@dataclass(frozen=True, slots=True)
class S3Options:
    """Options to reach S3-compatible storage."""

    access_key: str  # empty: those of the environment, as of other programs: AWS_ACCESS_KEY_ID, ~/.aws/credentials
    secret_key: str
    endpoint: str  # HOST or HOST:PORT, by HTTPS
    region: str = "us-east-1"
    ca_file: str = ""  # empty: the CA certificates of the system
    host_style: bool = False  # the bucket is named in the host name, not in the path


@dataclass(frozen=True, slots=True)
class FileDigest:
    """Size and digest by which a file is known."""

    bytes: int
    sha256: str


def is_bucket(name: str) -> bool:
    """Return whether a location is a bucket, ``s3://BUCKET/PATH``, and not a folder."""
    return name.startswith(_S3)


class Location:
    """Files by their paths from the archive's root, with ``/``. Every failure is an OperationError that names it."""

    def __init__(self, name: str, filesystem: Any, folder: Path | None, s3: S3Options | None = None) -> None:
        """``folder``: where it is a folder of this machine."""
        self.name = name
        self._s3 = s3
        self._files = filesystem
        self._folder = None if folder is None else FolderFiles(folder)

    @property
    def is_remote(self) -> bool:
        """Return whether each access is a request: few large ones are faster than many small ones."""
        return self._folder is None

    @classmethod
    def at(cls, name: str, s3: S3Options | None = None) -> Location:
        """``name``: a folder, which must exist, or ``s3://BUCKET/PATH``."""
        if is_bucket(name):
            if s3 is None:
                raise OperationError(f"archive {name}: S3 requires an endpoint and a key")
            filesystem = pafs.S3FileSystem(
                access_key=s3.access_key or None,
                secret_key=s3.secret_key or None,
                endpoint_override=s3.endpoint,
                region=s3.region,
                tls_ca_file_path=s3.ca_file or None,
                force_virtual_addressing=s3.host_style,
                connect_timeout=_CONNECT_SECONDS,
                request_timeout=_REQUEST_SECONDS,
                retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            )
            return cls(name, pafs.SubTreeFileSystem(name.removeprefix(_S3), filesystem), None, s3)
        folder = Path(name)
        if not folder.is_dir():  # not created: it may be a disk that is not mounted
            raise OperationError(f"archive {name}: no such folder; create it, or mount what it is on")
        return cls(name, pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem()), folder)

    def elsewhere(self) -> tuple[Callable[..., Location], tuple[Any, ...]]:
        """Call that opens it on another machine, with the credentials and the CA certificates of that machine."""
        return at_worker, (self.name, self._s3 and replace(self._s3, access_key="", secret_key="", ca_file=""))

    @contextmanager
    def failures(self, path: str = "") -> Iterator[None]:
        """Failures of the storage in the block, in words."""
        try:
            yield
        except ConnectionError:  # not of the storage: what is written is read from the database in the block
            raise
        except (OSError, pa.ArrowException) as error:
            prefix = f"{path}: " if path else ""
            raise OperationError(f"archive {self.name}: {prefix}{_reason(error)}") from error

    @contextmanager
    def created(self, path: str) -> Iterator[Any]:
        """A file object to be written in the block; durable when it ends, gone if anything raises."""
        with self.failures(path):
            if self._folder is not None:
                with self._folder.created(path) as stream:
                    yield stream
                return
            stream = self._files.open_output_stream(path, compression=None)
            try:
                yield stream
                stream.close()
            except BaseException:
                with suppress(OSError, pa.ArrowException):
                    stream.close()
                with suppress(OSError, pa.ArrowException):
                    self._files.delete_file(path)
                raise

    def write(self, path: str, content: bytes) -> None:
        """Replace a small file, at once or not at all."""
        if self._folder is None:
            with self.created(path) as stream:
                stream.write(content)
            return
        with self.created(f"{path}.partial") as stream:
            stream.write(content)
        self.move(f"{path}.partial", path)

    def move(self, path: str, to: str) -> None:
        """Rename a file; it replaces what is there."""
        with self.failures(to):
            (self._files if self._folder is None else self._folder).move(path, to)

    def opened(self, path: str) -> Any:
        """A file object to read from anywhere in it."""
        with self.failures(path):
            return self._files.open_input_file(path)

    def read(self, path: str) -> bytes:
        """All of a small file."""
        with self.failures(path), self._files.open_input_stream(path, compression=None) as stream:
            content: bytes = stream.read()
            return content

    def digest(self, path: str) -> FileDigest:
        """Size and digest of a file, read from the storage."""
        digest, size = hashlib.sha256(), 0
        with self.failures(path), self._files.open_input_stream(path, compression=None) as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
        return FileDigest(size, digest.hexdigest())

    def size(self, path: str) -> int | None:
        """Bytes of a file; None: there is none."""
        with self.failures(path):
            info = self._files.get_file_info(path)
        return info.size if info.type == pafs.FileType.File else None

    def entries(self) -> list[str]:
        """Names of the files and folders at the root, in order."""
        with self.failures():
            selector = pafs.FileSelector("", allow_not_found=True)
            return sorted(entry.base_name for entry in self._files.get_file_info(selector))

    def listing(self, path: str) -> list[str]:
        """Paths of the files below a folder, in order; none where there is no such folder."""
        with self.failures(path):
            if self._folder is not None:
                return sorted(self._folder.listing(path))
            selector = pafs.FileSelector(path, allow_not_found=True, recursive=True)
            return sorted(
                entry.path for entry in self._files.get_file_info(selector) if entry.type == pafs.FileType.File
            )

    def remove(self, path: str) -> None:
        """Remove a file."""
        with self.failures(path):
            (self._files.delete_file if self._folder is None else self._folder.remove)(path)

    def clear(self, path: str) -> None:
        """Remove a folder with all that it holds, where there is one."""
        with self.failures(path):
            if self._folder is not None:
                self._folder.clear(path)
            elif self._files.get_file_info(path).type == pafs.FileType.Directory:
                self._files.delete_dir(path)


@cache  # its connections are used again
def at_worker(name: str, s3: S3Options | None) -> Location:
    """The location that a task of another machine names. ``AWS_CA_BUNDLE``: file of CA certificates."""
    return Location.at(name, s3 and replace(s3, ca_file=os.environ.get("AWS_CA_BUNDLE", "")))


_Returned = TypeVar("_Returned")
_waiting: set[threading.Thread] = set()  # for storage that does not answer


async def in_thread(work: Callable[..., _Returned], *arguments: Any) -> _Returned:
    """Return the result of ``work``. Raises OperationError while an earlier access waits for the storage.

    Cancelled, it lets the thread end first, because nothing else may touch the file before that. But storage may not
    answer at all (NFS): it waits for ten seconds at most.
    """
    _waiting.intersection_update([thread for thread in _waiting if thread.is_alive()])
    if _waiting:
        raise OperationError("the archive's storage does not answer: an earlier access to it still waits")
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Returned] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_exception(error) if error is not None else done.set_result(result)

    def run() -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = work(*arguments)
        except BaseException as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, failure)

    thread = threading.Thread(target=run, name="plantlog archive", daemon=True)
    thread.start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        await asyncio.wait([done], timeout=_CANCEL_SECONDS)
        if not done.done():
            _waiting.add(thread)
        done.add_done_callback(asyncio.Future.exception)  # it is known that it may fail
        raise


def in_background(work: Callable[..., _Returned], *arguments: Any) -> asyncio.Task[_Returned]:
    """:func:`in_thread` as a task whose failure is not reported if nobody awaits it."""
    task = asyncio.ensure_future(in_thread(work, *arguments))
    task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return task


@asynccontextmanager
async def in_threads(manager: AbstractContextManager[_Returned]) -> AsyncIterator[_Returned]:
    """A context manager whose begin and end may wait for the storage."""
    entered = await in_thread(manager.__enter__)
    try:
        yield entered
    except asyncio.CancelledError as error:
        await clean_up(manager.__exit__, type(error), error, error.__traceback__)
        raise
    except BaseException as error:
        await in_thread(manager.__exit__, type(error), error, error.__traceback__)
        raise
    await in_thread(manager.__exit__, None, None, None)


async def clean_up(work: Callable[..., object], *arguments: Any) -> None:
    """Clean up; what fails is left to the next run. A task that is cancelled waits for ten seconds at most, twice."""
    task = asyncio.current_task()
    seconds = _CANCEL_SECONDS if task is not None and task.cancelling() else None
    with suppress(OperationError, TimeoutError):
        await asyncio.wait_for(in_thread(work, *arguments), seconds)


@asynccontextmanager
async def responding(location: Location, path: str, seconds: float) -> AsyncIterator[None]:
    """End the block with an OperationError if no file can be written at ``path`` for so long. NFS may never answer."""
    try:
        async with asyncio.timeout(seconds) as limit:
            probing = asyncio.ensure_future(_probe(location, path, seconds, limit))
            try:
                yield
            finally:
                probing.cancel()
                await asyncio.wait([probing])
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise OperationError(f"archive {location.name} does not answer for {seconds:g} s") from error


async def _probe(location: Location, path: str, seconds: float, limit: asyncio.Timeout) -> None:
    loop = asyncio.get_running_loop()
    while True:
        with suppress(OperationError):  # that is an answer
            await in_thread(location.write, path, b"")
        limit.reschedule(loop.time() + seconds)
        await asyncio.sleep(seconds / _PROBES)


def _reason(error: BaseException) -> str:
    """The storage's own words, in a line, without those that pyarrow puts around them."""
    if isinstance(error, OSError) and error.strerror and error.errno:
        return os.strerror(error.errno)
    return " ".join(str(error).split())


class FolderFiles:
    """Files by their paths from the folder. Raises OSError, also for a link among the folders of a path."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def created(self, path: str) -> Iterator[Any]:
        """A file object to be written in the block; durable when it ends, gone if anything raises."""
        with self._parent(path, create=True) as (folder, name):
            with suppress(FileNotFoundError):
                if stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
                    os.unlink(name, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            descriptor = os.open(name, flags, 0o666, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as file:
                stream = pa.PythonFile(file, mode="w")
                try:
                    yield stream
                    stream.flush()
                    os.fsync(descriptor)
                except BaseException:
                    with suppress(OSError):
                        os.unlink(name, dir_fd=folder)
                    raise

    def move(self, path: str, to: str) -> None:
        """Rename a file, durably; it replaces what is there."""
        with self._parent(path) as (source, old), self._parent(to, create=True) as (target, new):
            os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)
        for folder in (self._root / to).parents:
            sync(folder)
            if folder == self._root:
                break

    def listing(self, path: str) -> list[str]:
        """Paths of the files below a folder; none where there is no such folder."""
        paths: list[str] = []
        with suppress(FileNotFoundError), self._parent(f"{path}/.") as (top, _):
            for folder, _, names, descriptor in os.fwalk(".", dir_fd=top):
                files = (n for n in names if stat.S_ISREG(os.lstat(n, dir_fd=descriptor).st_mode))
                paths += [str(PurePosixPath(path, folder, name)) for name in files]
        return paths

    def remove(self, path: str) -> None:
        """Remove a file."""
        with self._parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def clear(self, path: str) -> None:
        """Remove a folder with all that it holds, where there is one; of links in it, the links."""
        with suppress(FileNotFoundError), self._parent(path) as (folder, name):
            rmtree(name, dir_fd=folder)

    @contextmanager
    def _parent(self, path: str, create: bool = False) -> Iterator[tuple[int, str]]:
        """A descriptor of the folder that a path is in, and the last name of the path."""
        *folders, name = path.split("/")
        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for folder in filter(None, folders):
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(folder, dir_fd=descriptor)
                below = _opened(folder, descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor, name
        finally:
            os.close(descriptor)


def _opened(folder: str, above: int) -> int:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    except NotADirectoryError:
        if stat.S_ISLNK(os.lstat(folder, dir_fd=above).st_mode):
            raise OSError(f"{folder} is a link, and links are not followed here") from None
        raise
