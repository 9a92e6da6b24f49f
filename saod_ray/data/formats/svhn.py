"""Street View House Numbers, full numbers: every image that a `digitStruct.mat` names."""

from __future__ import annotations

from saod_ray.config import OodSource, Part
from saod_ray.data.formats import FormatReader
from saod_ray.data.manifest import Manifest, empty_object_table, image_table
from saod_ray.data.source_files import SourceFiles
from saod_ray.errors import SaodError


class SvhnReader(FormatReader):
    """Images in the order of the file, which is HDF5 as MATLAB 7.3 writes it."""

    def read_unlabelled(self, files: SourceFiles, part: Part, source: OodSource) -> Manifest:
        """Each name in the file is a reference to an array of UTF-16 codes."""
        import h5py

        try:
            with files.file(part.annotations) as file, h5py.File(file, "r") as mat:
                codes = [mat[reference][()].ravel() for reference in mat["digitStruct"]["name"][()].ravel()]
            names = ["".join(map(chr, code)) for code in codes]
        except (OSError, KeyError, AttributeError, TypeError, ValueError, OverflowError) as error:
            location = files.folder.display_path(part.annotations)
            raise SaodError(
                f"{location} is not SVHN's digitStruct.mat ({error}): fetch the archive of full numbers again."
            ) from error
        return Manifest(image_table(range(len(names)), part.images, names), empty_object_table())


READER = SvhnReader()
