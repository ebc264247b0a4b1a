"""A frozen record whose docstring is the sentence that the screen shows."""

from pagedviz.engine.log.text import sentences


class Record:
    """Its `sentence` is the class's docstring with the record's fields filled in."""

    @property
    def kind(self) -> str:
        return type(self).__name__

    @property
    def sentence(self) -> str:
        """What happened and why, with ids."""
        return sentences.fill(type(self).__doc__ or "", {**vars(self), **self.phrases})

    @property
    def phrases(self) -> dict[str, str]:
        """Parts of the sentence that differ from case to case, by their names in the docstring."""
        return {}
