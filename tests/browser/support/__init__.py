"""What the browser's tests share: a running LineUp, a person at a page of it, and what is held against every page."""
