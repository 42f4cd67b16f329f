"""What the demo agent understands: one table of patterns, English and Chinese. Pure: a text in, an intent out."""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT_FOCUS_S = 25 * 60
FOCUS_S_MAX = 24 * 3600
TITLE_LENGTH_MAX = 120

# The first row that matches wins, so what is said most explicitly stands first.
RULES: tuple[tuple[str, str], ...] = (
    ("task", r"^\s*(?:new\s+)?task\s*[:：]\s*(?P<title>\S.*)|^\s*(?:新?任务|待办)\s*[:：]\s*(?P<title_zh>\S.*)"),
    ("help", r"^\s*(?:help|\?|？)|what can you do|帮助|你能做什么|会做什么|怎么用"),
    ("stop", r"^\s*(?:please\s+)?(?:stop|interrupt|end|quit|cancel)\b|停止|停下|停吧|^\s*停\s*$|结束|中断|不专注了"),
    ("focus", r"\bfocus\b|\bpomodoro\b|专注|番茄"),
    ("whiteboard", r"white\s?board|\bdraw\b|\bsketch\b|白板|画画|画图"),
    ("form", r"\bform\b|\binput\b|表单|填写"),
    ("confirm", r"\bconfirm\b|\bmay (?:you|i)\b|确认"),
    ("notice", r"\bnotice\b|\bremind\b|通知|提示"),
    ("choice", r"\bask me\b|\bchoice\b|\bchoose\b|\bquestion\b|问我|提问|选择"),
    ("greet", r"^\s*(?:hi|hello|hey|good (?:morning|evening|afternoon))\b|你好|您好|嗨|早上好|晚上好"),
)
_COMPILED = tuple((intent, re.compile(pattern, re.IGNORECASE | re.DOTALL)) for intent, pattern in RULES)

_UNITS: tuple[tuple[str, float], ...] = (
    (r"小时|hours?|hrs?|h\b", 3600),
    (r"分钟|分|minutes?|mins?|m\b", 60),
    (r"秒钟?|seconds?|secs?|s\b", 1),
)
_DURATION = re.compile(
    r"(?P<n>\d{1,6}(?:\.\d{1,3})?)[\s-]*(?:"
    + "|".join(f"(?P<u{i}>{unit})" for i, (unit, _) in enumerate(_UNITS))
    + ")",
    re.IGNORECASE,
)
_ACTIVITY = re.compile(
    r"\b(?:on|to|while|for)\s+(?!\s|\d|(?:an?|on|to|for)\b)(?P<activity>[^.!?。！？]+)", re.IGNORECASE
)
_FILLER_ZH = re.compile(r"请|帮我|开始|启动|进行|一个|一下|一会儿?|番茄钟?|专注于?|时间|我要|我想|吧|的|[，。！,.!\s]")
_CHINESE = re.compile(r"[\u3400-\u9fff]")


@dataclass(frozen=True)
class Intent:
    """What a person wants. ``seconds`` and ``activity`` belong to focus, ``title`` to task."""

    name: str
    chinese: bool = False
    seconds: int = DEFAULT_FOCUS_S
    activity: str | None = None
    title: str = ""


def understand(text: str) -> Intent:
    """The intent of a text; ``unknown`` if no rule matches."""
    chinese = _CHINESE.search(text) is not None
    for name, pattern in _COMPILED:
        found = pattern.search(text)
        if found is None:
            continue
        if name == "focus":
            return Intent(name, chinese, _seconds(text), _activity(text, chinese))
        if name == "task":
            title = (found["title"] or found["title_zh"]).strip()
            return Intent(name, chinese, title=title[:TITLE_LENGTH_MAX])
        return Intent(name, chinese)
    return Intent("unknown", chinese)


def _seconds(text: str) -> int:
    """All durations of the text added up: ``1 hour 30 minutes`` is 5,400 s. Without one, 25 minutes."""
    total = 0.0
    for found in _DURATION.finditer(text):
        unit = next(seconds for i, (_, seconds) in enumerate(_UNITS) if found[f"u{i}"])
        total += float(found["n"]) * unit
    return min(max(1, round(total)), FOCUS_S_MAX) if total else DEFAULT_FOCUS_S


def _activity(text: str, chinese: bool) -> str | None:
    rest = _DURATION.sub(" ", text)
    if chinese:
        activity = _FILLER_ZH.sub("", rest)
    else:
        found = _ACTIVITY.search(rest)
        activity = found["activity"].strip() if found else ""
    return activity[:TITLE_LENGTH_MAX] or None
