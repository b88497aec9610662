"""The model that a folder describes: a decoder with KV caches, or an encoder."""

import onnx

from compiler.ir.decoders.adapters import AdapterSites
from compiler.ir.decoders.text_files import TextFiles
from compiler.ir.encoders.design import Limit
from compiler.ir.folder import architectures as decoders
from compiler.ir.folder.archive import Files
from compiler.ir.folder.config import Config, document, unsupported_error
from compiler.ir.folder.decoder import decoder_of
from compiler.ir.folder.encoders import architectures as encoders
from compiler.ir.folder.encoders.encoder import encoder_of
from compiler.ir.folder.exporting import export_hint
from relaxd.contract.model_folder import ADAPTER, CONFIG

_MERGE = f"merge it by PEFT's merge_and_unload, or drop {ADAPTER}"


def model_of_folder(
    files: Files, sites: AdapterSites | None = None
) -> tuple[onnx.ModelProto, TextFiles, tuple[Limit, ...]]:
    """The model, what serving takes beside it, and limits of its axes; raises LoadError for an
    architecture that is not known, whatever code comes with it. sites: of a decoder's adapters.
    """
    config = Config(document(CONFIG, files.arrays[CONFIG]))
    names = config.get("architectures", [None])
    name = names[0] if isinstance(names, list) and names else None
    if isinstance(name, str) and name in decoders.ARCHITECTURES:
        return *decoder_of(files, config, decoders.ARCHITECTURES[name], sites), ()
    if ADAPTER in files.arrays:
        raise unsupported_error("adapters of other models than decoders", _MERGE)
    if isinstance(name, str) and name in encoders.ARCHITECTURES:
        return encoder_of(files, config, *encoders.ARCHITECTURES[name])
    known = sorted([*decoders.ARCHITECTURES, *encoders.FAMILIES])
    raise unsupported_error(
        f"folders of the architecture {str(name)[:60]!r}",
        f"supported are {', '.join(known)}; {export_hint(config)}",
    )
