package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/godbus/dbus/v5"
)

// bootID reads a file with a boot ID.
func bootID(file string) func() (string, error) {
	return func() (string, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("reading the boot ID: %w", err)
		}
		return strings.TrimSpace(string(text)), nil
	}
}

// record opens the kernel log for each record, because the kernel drops records that one
// opening writes too fast.
func record(device string) func(string) error {
	return func(text string) error { return write(device, text) }
}

// sysrq passes commands to the kernel.
func sysrq(trigger string) func(byte) error {
	return func(command byte) error { return write(trigger, string(command)) }
}

// write writes to a file that exists.
func write(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// systemd asks logind for a reboot, which notifies the sessions and respects the delay of a
// kubelet's graceful shutdown. If logind does not accept, it asks systemd itself.
func systemd(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := dbus.Connect(address, dbus.WithContext(ctx))
		if err != nil {
			return fmt.Errorf("connecting to the system bus of the host: %w", err)
		}
		defer func() { _ = conn.Close() }()
		session := conn.Object("org.freedesktop.login1", "/org/freedesktop/login1").
			CallWithContext(ctx, "org.freedesktop.login1.Manager.Reboot", 0, false)
		if session.Err == nil {
			return nil
		}
		manager := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").
			CallWithContext(ctx, "org.freedesktop.systemd1.Manager.Reboot", 0)
		if manager.Err == nil {
			return nil
		}
		return fmt.Errorf("requesting a reboot from logind: %w, and from systemd: %w", session.Err, manager.Err)
	}
}
