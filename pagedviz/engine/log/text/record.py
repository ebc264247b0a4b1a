"""A frozen record whose docstring is the sentence that the screen shows."""

from pagedviz.engine.log.text import sentences


class Record:
    """One text, not two: the class's docstring, with the record's fields filled in."""

    @property
    def kind(self) -> str:
        return type(self).__name__

    @property
    def sentence(self) -> str:
        """What happened and why, with ids, in the words of the class's docstring."""
        return sentences.fill(type(self).__doc__ or "", {**vars(self), **self.phrases})

    @property
    def phrases(self) -> dict[str, str]:
        """What the docstring says in other words from case to case."""
        return {}
