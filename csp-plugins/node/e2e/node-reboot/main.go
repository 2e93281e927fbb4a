// Command node-reboot is the program of the same name for the machine of the end-to-end test,
// whose files are beside its system bus. It cannot reach the kernel on which the test runs.
package main

import (
	"os"

	"github.com/nvidia/nvsentinel/csp-plugins/node/machine"
)

func main() {
	os.Exit(machine.Main(machine.Files{
		Bus: "unix:path=/run/dbus/system_bus_socket", KernelLog: "/run/dbus/kmsg",
		BootID: "/run/dbus/boot_id", SysrqTrigger: "/run/dbus/sysrq-trigger",
	}, os.Getenv))
}
