"""Who may do what: rules, tokens, passwords, sessions, and the file they are kept in."""

from headwater.serve.access.book import Access
from headwater.serve.access.rules import Principal, Rule, parse_rule

__all__ = ["Access", "Principal", "Rule", "parse_rule"]
