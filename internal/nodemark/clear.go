package nodemark

import "strings"

// ClearPrefix begins the annotations by which a person asks to have faults
// cleared: the rest of the key is a record's id, the value is the person's user
// name, ": ", and the reason. An admission policy holds that the name is the
// writer's own.
const ClearPrefix = "clear.nvsentinel.dgxc.nvidia.com/"

// Clearing is what one such annotation says.
type Clearing struct{ Record, By, Reason string }

// Clearings reads a Node's annotations; those without a name are left out.
func Clearings(annotations map[string]string) []Clearing {
	var out []Clearing
	for key, value := range annotations {
		id, ours := strings.CutPrefix(key, ClearPrefix)
		by, reason, named := strings.Cut(value, ": ")
		if ours && named && id != "" && by != "" {
			out = append(out, Clearing{id, by, reason})
		}
	}
	return out
}

// Annotation is a clearing's key and value.
func (c Clearing) Annotation() (key, value string) {
	return ClearPrefix + c.Record, c.By + ": " + c.Reason
}
