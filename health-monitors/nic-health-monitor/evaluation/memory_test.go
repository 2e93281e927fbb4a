package evaluation

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// aMemory is one of a node with a card that has a fault.
func aMemory() Memory {
	return Memory{
		Boot: "boot-1",
		Cards: map[string]Card{"0000:3b:00.0": {
			Name: "mlx5_0", GUID: "g0", Layer: InfiniBand, CharDevice: true,
			Ports: map[string]Link{"1": {Active: true, Courses: map[string]Course{"link_downed": {{Value: 7}}}}},
		}},
		Open: map[Key]Fault{{StateCheck(InfiniBand), "mlx5_0", "1", CodeDown}: {Location: "0000:3b:00.0"}},
	}
}

// card changes what aMemory knows of its card.
func (m *Memory) card(change func(*Card)) {
	c := m.Cards["0000:3b:00.0"]
	change(&c)
	m.Cards["0000:3b:00.0"] = c
}

// TestChangedSince: a memory is written when it knows more, and not at every look for the values of
// counters.
func TestChangedSince(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Memory)
		news   bool
	}{
		"nothing is new":      {func(*Memory) {}, false},
		"a boot":              {func(m *Memory) { m.Boot = "boot-2" }, true},
		"a card came":         {func(m *Memory) { m.Cards["0000:5e:00.0"] = Card{Name: "mlx5_1"} }, true},
		"a card is forgotten": {func(m *Memory) { clear(m.Cards) }, true},
		"a fault began":       {func(m *Memory) { m.Open[Key{Device: "mlx5_0", Code: CodeGone}] = Fault{} }, true},
		"a fault ended":       {func(m *Memory) { clear(m.Open) }, true},
		"another name":        {func(m *Memory) { m.card(func(c *Card) { c.Name = "mlx5_7" }) }, true},
		"another GUID":        {func(m *Memory) { m.card(func(c *Card) { c.GUID = "g9" }) }, true},
		"another layer":       {func(m *Memory) { m.card(func(c *Card) { c.Layer = Ethernet }) }, true},
		"a character device":  {func(m *Memory) { m.card(func(c *Card) { c.CharDevice = false }) }, true},
		"a link":              {func(m *Memory) { m.card(func(c *Card) { c.Ports = map[string]Link{"1": {}} }) }, true},
		"a second link":       {func(m *Memory) { m.card(func(c *Card) { c.Ports["2"] = Link{Active: true} }) }, true},
		"a port without link": {func(m *Memory) { m.card(func(c *Card) { c.Ports["2"] = Link{} }) }, false},
		"a counter's value": {func(m *Memory) {
			m.card(func(c *Card) {
				c.Ports["1"] = Link{Active: true, Courses: map[string]Course{"link_downed": {{Value: 8}}}}
			})
		}, false},
		"another card in its place": {func(m *Memory) {
			clear(m.Cards)
			m.Cards["0000:5e:00.0"] = Card{Name: "mlx5_0"}
		}, true},
	} {
		after := aMemory()
		c.change(&after)
		if news := after.ChangedSince(aMemory()); news != c.news {
			t.Errorf("%s: news %v, want %v", name, news, c.news)
		}
	}
}

// TestAFirstDay: a node of which nothing is remembered.
func TestAFirstDay(t *testing.T) {
	for _, data := range [][]byte{nil, {}} {
		if m, err := Decode(data); err != nil || m.Cards == nil || m.Open == nil || len(m.Cards)+len(m.Open) > 0 || m.Boot != "" {
			t.Errorf("%+v, %v", m, err)
		}
	}
}

// TestADamagedMemoryIsNone: the error names what is wrong, and it does not count as an empty
// one.
func TestADamagedMemoryIsNone(t *testing.T) {
	for data, want := range map[string]string{
		"{": "decoding the state", `{"open":{"check|card|port":{}}}`: `"check|card|port" is not a fault key`,
		`{"open":{"check|card|1|code|more":{}}}`: `"check|card|1|code|more" is not a fault key`,
	} {
		if _, err := Decode([]byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", data, err, want)
		}
	}
}

// TestAMemoryThatCannotBeWritten: a time that JSON does not have is an error, and nothing is
// written then.
func TestAMemoryThatCannotBeWritten(t *testing.T) {
	m := aMemory()
	m.Since = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	if data, err := m.Encode(); err == nil || data != nil {
		t.Errorf("%q, %v", data, err)
	}
}

// TestIDsOfAFault: the first event that reported a fault and the newest are remembered, no more
// than the bound.
func TestIDsOfAFault(t *testing.T) {
	k := Key{StateCheck(InfiniBand), "mlx5_0", "1", CodeDown}
	for named, want := range map[int][3]string{
		maxIDs - 1: {"0", "1", strconv.Itoa(maxIDs - 2)}, maxIDs: {"0", "1", strconv.Itoa(maxIDs - 1)},
		maxIDs + 1: {"0", "2", strconv.Itoa(maxIDs)}, maxIDs + 2: {"0", "3", strconv.Itoa(maxIDs + 1)},
	} {
		m := aMemory()
		for i := range named {
			m.Name(k, strconv.Itoa(i))
			m.Name(Key{Device: "closed"}, strconv.Itoa(i))
		}
		ids := m.Open[k].IDs
		if len(ids) != min(named, maxIDs) || [3]string{ids[0], ids[1], ids[len(ids)-1]} != want || len(m.Open) != 1 {
			t.Errorf("%d events: %q are remembered, want the first, second and last to be %q", named, ids, want)
		}
	}
}

// TestEventContent: a fault of a port names card and port, one of a card names that alone.
func TestEventContent(t *testing.T) {
	for port, want := range map[string][]string{"1": {"NIC=mlx5_0", "NICPort=1"}, "": {"NIC=mlx5_0"}} {
		e := Report{Key: Key{"check", "mlx5_0", port, CodeGone}, Location: "0000:3b:00.0"}.Event("n1", "boot-1", time.Unix(0, 0))
		var names []string
		for _, x := range e.GetEntitiesImpacted() {
			names = append(names, x.GetEntityType()+"="+x.GetEntityValue())
		}
		if !slices.Equal(names, want) || e.GetMetadata()[MetadataLocation] != "0000:3b:00.0" {
			t.Errorf("port %q: %q, %v", port, names, e.GetMetadata())
		}
	}
}
