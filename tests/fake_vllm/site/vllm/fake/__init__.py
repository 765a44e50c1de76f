"""What makes the stand-in run: behaviour, performance, logs, the two processes and their HTTP interface."""
