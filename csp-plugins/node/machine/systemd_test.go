package machine

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/nvidia/nvsentinel/internal/testkit"
)

// manager is one of systemd's objects on a bus, which records its calls.
type manager struct {
	name   string
	calls  *calls
	answer *dbus.Error
}

// calls are what was called, in their order.
type calls struct {
	mu    sync.Mutex
	names []string
}

func (m manager) note() *dbus.Error {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	m.calls.names = append(m.calls.names, m.name)
	return m.answer
}

// logind has the methods of logind, and unit those of systemd.
type (
	logind struct{ manager }
	unit   struct{ manager }
)

func (l logind) Reboot(_ bool) *dbus.Error { return l.note() }
func (u unit) Reboot() *dbus.Error         { return u.note() }

// bus starts a D-Bus daemon and returns its address.
func bus(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("dbus-daemon is not installed (package dbus)")
	}
	cmd := exec.Command(program, "--session", "--nofork", "--print-address=1", "--address=unix:path="+filepath.Join(t.TempDir(), "bus"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := testkit.StartChild(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the bus did not start: %v", err)
	}
	return strings.TrimSpace(address)
}

func TestSystemd(t *testing.T) {
	refused := dbus.MakeFailedError(exec.ErrNotFound)
	for name, tt := range map[string]struct {
		logind, systemd *dbus.Error
		calls           []string
		ok              bool
	}{
		"logind accepts":  {nil, nil, []string{"login1"}, true},
		"logind refuses":  {refused, nil, []string{"login1", "systemd1"}, true},
		"both refuse":     {refused, refused, []string{"login1", "systemd1"}, false},
		"systemd is last": {nil, refused, []string{"login1"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			address := bus(t)
			conn, err := dbus.Connect(address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			var made calls
			serve(t, conn, "login1", logind{manager{"login1", &made, tt.logind}})
			serve(t, conn, "systemd1", unit{manager{"systemd1", &made, tt.systemd}})
			err = systemd(address)(t.Context())
			made.mu.Lock()
			defer made.mu.Unlock()
			if (err == nil) != tt.ok || !slices.Equal(made.names, tt.calls) {
				t.Errorf("%v after %q; want success %v after %q", err, made.names, tt.ok, tt.calls)
			}
		})
	}
}

// serve exports an object under a name of systemd.
func serve(t *testing.T, conn *dbus.Conn, name string, object any) {
	t.Helper()
	path := dbus.ObjectPath("/org/freedesktop/" + name)
	if err := conn.Export(object, path, "org.freedesktop."+name+".Manager"); err != nil {
		t.Fatal(err)
	}
	if reply, err := conn.RequestName("org.freedesktop."+name, 0); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("%v, %v", reply, err)
	}
}

func TestNoSystemBus(t *testing.T) {
	err := systemd("unix:path=" + filepath.Join(t.TempDir(), "none"))(t.Context())
	if err == nil || !strings.Contains(err.Error(), "connecting to the system bus") {
		t.Errorf("%v", err)
	}
}
