"""The engine ``ray:local``: a head and worker nodes of Ray on this machine."""
