"""The type checker that jaxtyping applies to ghofl while tests run; an int is accepted where a float is asked for."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
