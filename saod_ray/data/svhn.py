"""Street View House Numbers, full numbers: every image that a `digitStruct.mat` names."""

from __future__ import annotations

from saod_ray.config import OodSource, Part
from saod_ray.data.manifest import Manifest, image_table, object_table
from saod_ray.data.raw import Raw
from saod_ray.errors import SaodError


def inputs(part: Part) -> list[str]:
    """The files that decide the manifest."""
    return [part.annotations]


def unlabelled(raw: Raw, part: Part, source: OodSource) -> Manifest:
    """The images in the order of the file, which is MATLAB 7.3's HDF5: a name is a reference to its UTF-16 codes."""
    import h5py

    try:
        with raw.file(part.annotations) as file, h5py.File(file, "r") as mat:
            codes = [mat[reference][()].ravel() for reference in mat["digitStruct"]["name"][()].ravel()]
        names = ["".join(map(chr, each)) for each in codes]
    except (OSError, KeyError, AttributeError, TypeError, ValueError, OverflowError) as error:
        place = raw.folder.display_path(part.annotations)
        raise SaodError(
            f"{place} is not SVHN's digitStruct.mat ({error}): fetch the archive of full numbers again."
        ) from None
    return Manifest(image_table(range(len(names)), part.images, names), object_table([], [], []))
