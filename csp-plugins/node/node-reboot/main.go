// Command node-reboot reboots the machine on which it runs. csp-plugin-node runs it as a
// Job, with the order in environment variables.
//
// It records in the kernel log who reboots the machine and why, asks systemd over D-Bus, and
// uses sysrq if systemd does not end the machine in time. It does nothing if the machine has
// another boot ID than the order, or if the order has expired.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/csp-plugins/node/order"
)

func main() {
	bus := flag.String("bus", "unix:path=/run/dbus/system_bus_socket", "D-Bus address of the host's system bus.")
	kernel := flag.String("kernel-log", "/dev/kmsg", "Device or file to which the reason for the reboot is written.")
	boot := flag.String("boot-id-file", "/proc/sys/kernel/random/boot_id", "File with the boot ID of the host.")
	trigger := flag.String("sysrq-trigger", "/proc/sysrq-trigger", "File that passes sysrq commands to the kernel.")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "node-reboot reboots the machine on which it runs. It runs in a Job of csp-plugin-node, which passes the order in environment variables.\n\nUsage of node-reboot:")
		flag.PrintDefaults()
	}
	flag.Parse()
	// The shutdown sends SIGTERM to each process. The program stays, because systemd may not
	// end the machine.
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, os.Interrupt)
	host := Host{
		BootID: bootID(*boot), Record: record(*kernel), Systemd: systemd(*bus), Sysrq: sysrq(*trigger),
		Clock: clock.RealClock{}, Log: func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
	}
	os.Exit(run(host, os.Getenv).Code())
}

func run(host Host, environment func(string) string) order.Result {
	o, err := order.Parse(environment)
	if err != nil {
		host.Log("the order is invalid, so nothing is done: %v", err)
		return order.Unreadable
	}
	return host.Reboot(context.Background(), o)
}
