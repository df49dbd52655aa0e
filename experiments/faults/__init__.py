"""What faults cost: injected into the processes of devices, into heads, and into disks."""
