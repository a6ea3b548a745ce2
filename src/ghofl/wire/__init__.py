"""What travels: moments with a header as bytes, one message per site, and the total of many.

::

    moments ─ packing ─ envelope ─▶ Message ─ bytes ─▶ Message ─ Aggregator ─▶ Total     (container: safetensors)
    a head's rule, recipe and record ─▶ HeadFile ─ bytes ─▶ HeadFile

Every byte from outside is treated as hostile: sizes before anything is allocated, then types, bounds, checksum and
fingerprint, and whether rows on the grid could have made what came (`plausible`).
"""
