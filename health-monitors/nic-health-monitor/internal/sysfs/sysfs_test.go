package sysfs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/evaluation"
	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/internal/sysfs"
)

// grow writes a tree of files, each line "path: content".
func grow(t *testing.T, root, files string) {
	t.Helper()
	for line := range strings.Lines(files) {
		path, content, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "= ")
		if !ok {
			t.Fatalf("%q is no file", line)
		}
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// node has an InfiniBand card with two ports, an Ethernet card with an interface,
// a virtual function of it, and the node's own card, whose default route is that
// of a VLAN on a bond.
const node = `sys/class/infiniband/mlx5_0/node_guid= b83f:d203:0001:0000
sys/class/infiniband/mlx5_0/hca_type= MT4129
sys/class/infiniband/mlx5_0/board_id= MT_0000000838
sys/class/infiniband/mlx5_0/device/uevent= PCI_SLOT_NAME=0000:3b:00.0
sys/class/infiniband/mlx5_0/ports/1/state= 4: ACTIVE
sys/class/infiniband/mlx5_0/ports/1/phys_state= 5: LinkUp
sys/class/infiniband/mlx5_0/ports/1/link_layer= InfiniBand
sys/class/infiniband/mlx5_0/ports/1/counters/link_downed= 3
sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error= N/A (no PMA)
sys/class/infiniband/mlx5_0/ports/1/hw_counters/rnr_nak_retry_err= 7
sys/class/infiniband/mlx5_0/ports/2/state= 1: DOWN
sys/class/infiniband/mlx5_0/ports/2/phys_state= 3: Disabled
sys/class/infiniband/mlx5_0/ports/2/link_layer= InfiniBand
sys/class/infiniband_verbs/uverbs0/ibdev= mlx5_0
sys/class/infiniband_verbs/abi_version= 6
sys/class/infiniband/mlx5_1/device/uevent= PCI_SLOT_NAME=0000:5e:00.0
sys/class/infiniband/mlx5_1/ports/1/state= 1: DOWN
sys/class/infiniband/mlx5_1/ports/1/phys_state= 2: Polling
sys/class/infiniband/mlx5_1/ports/1/link_layer= Ethernet
sys/class/infiniband/mlx5_1/device/net/eth1/address= x
sys/class/infiniband/mlx5_1/device/net/eth1_vf/address= x
sys/class/net/eth1/carrier_changes= 12
sys/class/net/eth1/dev_port= 0
sys/class/net/eth1_vf/carrier_changes= 99
sys/class/net/eth1_vf/dev_port= 0
sys/class/net/eth1_vf/phys_port_name= pf0vf3
sys/class/infiniband/mlx5_2/device/physfn/vendor= x
sys/class/infiniband/mlx5_2/ports/1/state= 4: ACTIVE
sys/class/infiniband/mlx5_3/ports/1/state= 4: ACTIVE
sys/class/infiniband/mlx5_3/ports/1/link_layer= Ethernet
sys/class/infiniband/mlx5_3/device/net/eth3/address= x
sys/class/net/eth3/upper_bond0/x= x
sys/class/net/bond0/upper_bond0.100/x= x
net/route= Iface	Destination	Gateway	Flags	RefCnt	Use	Metric	Mask
`

func TestANode(t *testing.T) {
	dir := t.TempDir()
	grow(t, dir, node)
	for card, uevent := range map[string]string{
		"mlx5_0": "DRIVER=mlx5_core\nPCI_CLASS=20700\nPCI_SLOT_NAME=0000:3b:00.0\n", "mlx5_3": "DRIVER=ice\nPCI_SLOT_NAME=0000:86:00.0\n",
	} {
		path := filepath.Join(dir, "sys/class/infiniband", card, "device/uevent")
		if err := os.WriteFile(path, []byte(uevent), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	routes := "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n" +
		"eth1\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\nbond0.100\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
	if err := os.WriteFile(filepath.Join(dir, "net/route"), []byte(routes), 0o644); err != nil {
		t.Fatal(err)
	}
	tree := &sysfs.Tree{
		Root: filepath.Join(dir, "sys"), Routes: filepath.Join(dir, "net"),
		Counters: []string{"link_downed", "symbol_error", "rnr_nak_retry_err", "carrier_changes"},
	}
	now := time.Unix(1000, 0)
	want := evaluation.Reading{At: now, Boot: "b", CharDevices: true, Unwatched: []string{"mlx5_2", "0000:86:00.0"}, Drivers: map[string]bool{"mlx5_core": true, "ice": true}, Devices: []evaluation.Device{
		{
			Name: "mlx5_0", Location: "0000:3b:00.0", Driver: "mlx5_core", GUID: "b83f:d203:0001:0000", Model: "MT4129 MT_0000000838", CharDevice: true,
			Ports: []evaluation.Port{
				{Number: "1", Layer: evaluation.InfiniBand, State: evaluation.Active, Counters: map[string]uint64{"link_downed": 3, "rnr_nak_retry_err": 7}},
				{Number: "2", Layer: evaluation.InfiniBand, State: evaluation.Disabled, Counters: map[string]uint64{}},
			},
		},
		{
			Name: "mlx5_1", Location: "0000:5e:00.0", Model: " ",
			Ports: []evaluation.Port{{Number: "1", Layer: evaluation.Ethernet, State: evaluation.Down, Counters: map[string]uint64{"carrier_changes": 12}}},
		},
	}}
	got, stats, err := tree.Read("b", now)
	if diff := cmp.Diff(want, got); diff != "" || err != nil || stats.Unreadable != 0 {
		t.Errorf("error %v, stats %+v (-want +got):\n%s", err, stats, diff)
	}

	// The node's own card stays its own when its link, and with it the route, goes.
	grow(t, dir, "net/route= Iface")
	if got, _, err = tree.Read("b", now); err != nil || len(got.Devices) != 2 {
		t.Errorf("error %v, cards %v", err, names(got))
	}
	tree.Include = regexp.MustCompile("^mlx5_[03]$")
	if got, _, err = tree.Read("b", now); err != nil || strings.Join(names(got), " ") != "mlx5_0 mlx5_3" {
		t.Errorf("error %v, cards %v", err, names(got))
	}
	tree.Include, tree.Exclude = nil, regexp.MustCompile("_0$")
	if got, _, err = tree.Read("b", now); err != nil || strings.Join(names(got), " ") != "mlx5_1" {
		t.Errorf("error %v, cards %v", err, names(got))
	}
}

func names(r evaluation.Reading) (out []string) {
	for _, d := range r.Devices {
		out = append(out, d.Name)
	}
	return out
}

func TestStates(t *testing.T) {
	for line, want := range map[string]evaluation.State{
		"4: ACTIVE|5: LinkUp": evaluation.Active, "1: DOWN|2: Polling": evaluation.Down, "1: DOWN|3: Disabled": evaluation.Disabled,
		"2: INIT|5: LinkUp": evaluation.Between, "3: ARMED|5: LinkUp": evaluation.Between, "5: ACTIVE_DEFER|5: LinkUp": evaluation.Between,
		"|5: LinkUp": evaluation.Unreadable, "ACTIVE|": evaluation.Unreadable, "9: new|5: LinkUp": evaluation.Unreadable,
	} {
		dir := t.TempDir()
		logical, physical, _ := strings.Cut(line, "|")
		grow(t, dir, "class/infiniband/mlx5_0/ports/1/state= "+logical+"\nclass/infiniband/mlx5_0/ports/1/phys_state= "+physical)
		r, stats, err := (&sysfs.Tree{Root: dir}).Read("b", time.Unix(1, 0))
		if err != nil || len(r.Devices) != 1 || r.Devices[0].Ports[0].State != want || (stats.Unreadable == 1) != (want == evaluation.Unreadable) {
			t.Errorf("%s: %v, %+v, error %v", line, r, stats, err)
		}
	}
}

// TestUnlistableFolderIsAnError: a list that is not whole would take cards for
// gone.
func TestUnlistableFolderIsAnError(t *testing.T) {
	dir := t.TempDir()
	look := func(tree sysfs.Tree) error { _, _, err := tree.Read("b", time.Unix(1, 0)); return err }
	if look(sysfs.Tree{Root: dir}) == nil {
		t.Error("a folder that is no sysfs has no cards")
	}
	grow(t, dir, "class/infiniband= not a folder")
	if look(sysfs.Tree{Root: dir}) == nil {
		t.Error("what cannot be listed has no cards")
	}
	if err := os.Remove(filepath.Join(dir, "class/infiniband")); err != nil {
		t.Fatal(err)
	}
	if err := look(sysfs.Tree{Root: dir}); err != nil {
		t.Errorf("without the driver: %v", err)
	}
	if look(sysfs.Tree{Root: dir, Routes: filepath.Join(dir, "net")}) == nil {
		t.Error("without routes the node's own card is not known")
	}
}

// TestCardRemovedDuringReadFails: without its address it would be taken
// for another card, which is gone a moment later.
func TestCardRemovedDuringReadFails(t *testing.T) {
	dir := t.TempDir()
	grow(t, dir, node)
	card := filepath.Join(dir, "sys/class/infiniband/mlx5_0")
	counter := filepath.Join(card, "ports/1/counters/link_downed")
	if err := errors.Join(os.Remove(counter), syscall.Mkfifo(counter, 0o644)); err != nil {
		t.Fatal(err)
	}
	tree := &sysfs.Tree{Root: filepath.Join(dir, "sys"), Counters: []string{"link_downed"}}
	looked := make(chan error, 1)
	go func() {
		r, _, err := tree.Read("b", time.Unix(1, 0))
		if err == nil {
			t.Errorf("the look went well and saw %v", r.Devices)
		}
		looked <- err
	}()
	waiting, err := os.OpenFile(counter, os.O_WRONLY, 0) // opens when the look reads
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, "sys/class/infiniband/mlx5_1")), waiting.Close()); err != nil {
		t.Fatal(err)
	}
	<-looked
	if err := os.Remove(counter); err != nil {
		t.Fatal(err)
	}
	if r, _, err := tree.Read("b", time.Unix(2, 0)); err != nil || strings.Join(names(r), " ") != "mlx5_0 mlx5_3" {
		t.Errorf("error %v, cards %v", err, names(r))
	}
}

func TestUnreadableAddressFailsTheRead(t *testing.T) {
	for _, card := range []string{"mlx5_0", "mlx5_2"} { // the second one is not watched
		dir := t.TempDir()
		grow(t, dir, node)
		uevent := filepath.Join(dir, "sys/class/infiniband", card, "device/uevent")
		if err := os.RemoveAll(uevent); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(uevent, 0o755); err != nil { // opens, and cannot be read
			t.Fatal(err)
		}
		if r, _, err := (&sysfs.Tree{Root: filepath.Join(dir, "sys")}).Read("b", time.Unix(1, 0)); err == nil {
			t.Errorf("%s: the look went well and saw %+v", card, r)
		}
	}
}

// TestUnreadableCharDeviceIsUnknown: cards without a readable character device are unknown.
func TestUnreadableCharDeviceIsUnknown(t *testing.T) {
	dir := t.TempDir()
	grow(t, dir, node)
	tree := &sysfs.Tree{Root: filepath.Join(dir, "sys")}
	ibdev := filepath.Join(dir, "sys/class/infiniband_verbs/uverbs0/ibdev")
	if r, _, err := tree.Read("b", time.Unix(1, 0)); err != nil || !r.CharDevices || !r.Devices[0].CharDevice {
		t.Errorf("error %v, %+v", err, r)
	}
	if err := errors.Join(os.Remove(ibdev), os.Mkdir(ibdev, 0o755)); err != nil { // opens, and cannot be read
		t.Fatal(err)
	}
	if r, _, err := tree.Read("b", time.Unix(2, 0)); err != nil || r.CharDevices {
		t.Errorf("error %v, %+v", err, r)
	}
	if err := os.RemoveAll(filepath.Dir(ibdev)); err != nil {
		t.Fatal(err)
	}
	if r, _, err := tree.Read("b", time.Unix(3, 0)); err != nil || !r.CharDevices || r.Devices[0].CharDevice {
		t.Errorf("error %v, %+v", err, r)
	}
}

func TestCardsAndPortsAreBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range 17 {
		grow(t, dir, fmt.Sprintf("class/infiniband/mlx5_0/ports/%d/state= 4: ACTIVE", i+1))
	}
	r, _, err := (&sysfs.Tree{Root: dir}).Read("b", time.Unix(1, 0))
	if err != nil || len(r.Devices) != 1 || len(r.Devices[0].Ports) != 16 || r.Devices[0].Ports[15].Number != "16" {
		t.Errorf("%v, error %v", r.Devices, err)
	}
	for i := range 256 { // with the one above, one too many
		if err := os.MkdirAll(filepath.Join(dir, fmt.Sprintf("class/infiniband/x%d", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := (&sysfs.Tree{Root: dir}).Read("b", time.Unix(1, 0)); err == nil {
		t.Error("257 cards were looked at")
	}
}
