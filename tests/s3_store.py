"""S3 in memory, as s3fs shows it: the requests of multipart uploads with S3's rules, and a count of what they carry."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any, ClassVar

from fsspec.implementations.memory import MemoryFileSystem
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.fsspec import FsspecInputFile, FsspecOutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

MIN_PART = 5 << 20


class MemoryS3(MemoryFileSystem):  # type: ignore[misc]
    """The store. ``requests`` has the name of each request and the bytes that came or went through its client."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.store: dict[str, Any] = {}
        self.pseudo_dirs = [""]
        self.requests: list[tuple[str, int]] = []
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.refused: set[str] = set()
        self._ids = itertools.count()

    def through(self, *names: str) -> int:
        """Return the bytes that requests of these names carried."""
        return sum(size for name, size in self.requests if name in names)

    def names(self) -> list[str]:
        return [name for name, _ in self.requests]

    def split_path(self, path: str) -> tuple[str, str, None]:
        bucket, _, key = path.removeprefix("s3://").partition("/")
        return bucket, key, None

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        data: bytes = super().cat_file(path, start=start, end=end)
        self.requests.append(("get_object", len(data)))
        return data

    def call_s3(self, name: str, **given: Any) -> Any:
        self.requests.append((name, len(given.get("Body", b""))))
        if name in self.refused:
            raise PermissionError(name)
        return getattr(self, f"_{name}")(**given)

    def _put_object(self, Bucket: str, Key: str, Body: bytes) -> None:  # noqa: N803
        self.pipe_file(f"s3://{Bucket}/{Key}", Body)

    def _head_object(self, Bucket: str, Key: str) -> Any:  # noqa: N803
        data = MemoryFileSystem.cat_file(self, f"s3://{Bucket}/{Key}")
        return {"ContentLength": len(data), "ETag": etag(data)}

    def _create_multipart_upload(self, Bucket: str, Key: str) -> Any:  # noqa: N803
        upload = str(next(self._ids))
        self.uploads[upload] = {}
        return {"UploadId": upload}

    def _upload_part(self, Bucket: str, Key: str, UploadId: str, PartNumber: int, Body: bytes) -> Any:  # noqa: N803
        self.uploads[UploadId][PartNumber] = Body
        return {"ETag": etag(Body)}

    def _upload_part_copy(
        self,
        Bucket: str,  # noqa: N803
        Key: str,  # noqa: N803
        UploadId: str,  # noqa: N803
        PartNumber: int,  # noqa: N803
        CopySource: dict[str, str],  # noqa: N803
        CopySourceIfMatch: str,  # noqa: N803
        CopySourceRange: str,  # noqa: N803
    ) -> Any:
        data = MemoryFileSystem.cat_file(self, f"s3://{CopySource['Bucket']}/{CopySource['Key']}")
        if etag(data) != CopySourceIfMatch:
            raise refusal("PreconditionFailed")
        start, end = map(int, CopySourceRange.removeprefix("bytes=").split("-"))
        if not start <= end < len(data):
            raise refusal("InvalidRange")
        self.uploads[UploadId][PartNumber] = data[start : end + 1]
        return {"CopyPartResult": {"ETag": etag(data[start : end + 1])}}

    def _complete_multipart_upload(
        self,
        Bucket: str,  # noqa: N803
        Key: str,  # noqa: N803
        UploadId: str,  # noqa: N803
        MultipartUpload: Any,  # noqa: N803
    ) -> None:
        parts = [self.uploads[UploadId][part["PartNumber"]] for part in MultipartUpload["Parts"]]
        assert [part["ETag"] for part in MultipartUpload["Parts"]] == [etag(part) for part in parts]
        if any(len(part) < MIN_PART for part in parts[:-1]):
            raise refusal("EntityTooSmall")
        self.pipe_file(f"s3://{Bucket}/{Key}", b"".join(parts))
        del self.uploads[UploadId]

    def _abort_multipart_upload(self, Bucket: str, Key: str, UploadId: str) -> None:  # noqa: N803
        del self.uploads[UploadId]


class MemoryS3IO(FileIO):
    """pyiceberg's way to a store; catalogs make one for each table. ``stores`` has each by its ``s3.endpoint``."""

    stores: ClassVar[dict[str, MemoryS3]] = {}

    def __init__(self, properties: dict[str, str]) -> None:
        super().__init__(properties)
        self.filesystem = self.stores[properties["s3.endpoint"]]

    def new_input(self, location: str) -> InputFile:
        return FsspecInputFile(location, self.filesystem)

    def new_output(self, location: str) -> OutputFile:
        return FsspecOutputFile(location, self.filesystem)

    def delete(self, location: Any) -> None:
        self.filesystem.rm(location if isinstance(location, str) else location.location)


class PlainFile(InputFile, OutputFile):
    """A file without a file system of fsspec."""

    def __init__(self, location: str, filesystem: MemoryS3) -> None:
        super().__init__(location)
        self._input, self._output = FsspecInputFile(location, filesystem), FsspecOutputFile(location, filesystem)

    def __len__(self) -> int:
        return len(self._input)

    def exists(self) -> bool:
        return self._input.exists()

    def open(self, seekable: bool = True) -> Any:
        return self._input.open(seekable)

    def create(self, overwrite: bool = False) -> Any:
        stream: Any = self._output.create(overwrite)
        write, requests = stream.write, self._output._fs.requests
        stream.write = lambda data: requests.append(("by arrow", len(data))) or write(data)
        return stream

    def to_input_file(self) -> InputFile:
        return self


class ArrowIO(MemoryS3IO):
    """The same store as Arrow's client shows it."""

    def new_input(self, location: str) -> InputFile:
        return PlainFile(location, self.filesystem)

    def new_output(self, location: str) -> OutputFile:
        return PlainFile(location, self.filesystem)


ArrowIO.__module__ = PyArrowFileIO.__module__


def etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


def refusal(code: str) -> OSError:
    """An error of s3fs: botocore's is its cause, and has S3's answer."""
    error = OSError(code)
    cause = Exception(code)
    cause.__dict__["response"] = {"Error": {"Code": code}}
    error.__cause__ = cause
    return error
