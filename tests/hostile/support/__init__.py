"""A real Runtime with MiniApps that try, somebody who only wants to work meanwhile, and what it costs them."""
