"""The GraphQL calls of published programs, answered by the server of the page."""
