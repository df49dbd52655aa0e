"""What a person is told in one line; nothing here imports anything, so that everybody may raise it."""


class UserError(Exception):
    """What was given or asked for cannot be used; the message says what is wrong and what is allowed."""


class QuestionError(UserError):
    """A question cannot be answered as it is asked.

    Attributes
    ----------
    problem
        What is wrong, and what is allowed.
    argument
        The argument of the Python call that is at fault, empty if it is none; the command names its own option for it.

    >>> str(QuestionError("nobody answers", "ray"))
    'ray: nobody answers'
    """

    def __init__(self, problem: str, argument: str = "") -> None:
        super().__init__(problem, argument)
        self.problem, self.argument = problem, argument

    def __str__(self) -> str:
        return f"{self.argument}: {self.problem}" if self.argument else self.problem
