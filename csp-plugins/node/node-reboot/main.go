// Command node-reboot reboots the machine on which it runs. csp-plugin-node runs it as a
// Job, with the order in environment variables.
//
// It records in the kernel log who reboots the machine and why, asks systemd over D-Bus, and
// uses sysrq if systemd does not end the machine in time. It does nothing if the machine has
// another boot ID than the order, or if the order has expired.
package main

import (
	"os"

	"github.com/nvidia/nvsentinel/csp-plugins/node/machine"
)

func main() {
	os.Exit(machine.Main(machine.Files{
		Bus: "unix:path=/run/dbus/system_bus_socket", KernelLog: "/dev/kmsg",
		BootID: "/proc/sys/kernel/random/boot_id", SysrqTrigger: "/proc/sysrq-trigger",
	}, os.Getenv))
}
