"""What one does with the page in a browser, and sees."""

from tests.server.browser import Browser


def choose(page: Browser, name: str, select: str = "signature") -> None:
    page.value(
        f"""{{ const s = document.querySelector('#{select}');
        s.value = {name!r}; s.dispatchEvent(new Event('change')); }}"""
    )


def fill(page: Browser, **fields: str) -> None:
    for name, text in fields.items():
        page.value(f"document.querySelector('#input-{name}').select()")
        page.type(text)


def shown(page: Browser, selector: str) -> str:
    return page.value(f"document.querySelector({selector!r}).innerText")


def rows(page: Browser) -> list[list[str]]:
    """The cells of all tables of the answer, without bars."""
    return page.value(
        "[...document.querySelectorAll('#answer tr')].map(r =>"
        " [...r.querySelectorAll('th, td:not(.bar)')].map(c => c.textContent))"
    )


def refused(page: Browser) -> str:
    page.value("document.querySelector('#send').click()")
    return page.until("document.querySelector('#error').innerText")


def answered(page: Browser) -> None:
    page.until(
        "document.querySelector('#status').innerText.startsWith('Answered')"
    )


def answer(page: Browser) -> str:
    page.value("document.querySelector('#send').click()")
    answered(page)
    return page.value("document.querySelector('#answer').innerText")


def view(page: Browser) -> str:
    return page.value("document.querySelector('#answer').dataset.view")


def marks(page: Browser) -> list[str]:
    return page.value(
        "[...document.querySelectorAll('#answer mark')].map(m => m.innerText)"
    )
