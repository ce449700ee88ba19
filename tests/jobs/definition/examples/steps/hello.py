message = "Hello, World!"
