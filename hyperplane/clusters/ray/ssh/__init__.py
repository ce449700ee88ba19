"""The engine ``ray:ssh``: a head of Ray on this machine, and worker nodes on other hosts."""
