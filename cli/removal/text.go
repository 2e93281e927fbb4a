package removal

import (
	"fmt"
	"io"
	"strings"
)

// Write writes the plan as text: every item under its kind, then how many.
func (p Plan) Write(w io.Writer) error {
	var b strings.Builder
	for _, x := range p.Unread {
		fmt.Fprintf(&b, "! not read: %s\n", x)
	}
	for _, x := range p.Running {
		fmt.Fprintf(&b, "! still runs: %s\n", x)
	}
	kind, left := "", 0
	for _, i := range p.Items {
		if i.Kind != kind {
			kind = i.Kind
			fmt.Fprintf(&b, "%s\n", kind)
		}
		if !i.Remove {
			left++
		}
		fmt.Fprintf(&b, "  %s\n", i.text())
	}
	fmt.Fprintf(&b, "%d to remove, %d left\n", p.Removes(), left)
	b.WriteString(foldersText)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// foldersText is how the folders are removed, which this program cannot.
var foldersText = `The folders, node by node (it needs a privileged pod, which you remove afterwards):
  kubectl debug node/<node> --profile=sysadmin --image=busybox -- chroot /host rm -rf ` + strings.Join(Folders, " ") + "\n"

func (i Item) text() string {
	out := "leave   "
	switch {
	case i.Outcome != "":
		out = fmt.Sprintf("%-8s", i.Outcome)
	case i.Remove:
		out = "remove  "
	}
	if i.Namespace != "" {
		out += i.Namespace + "/"
	}
	out += i.Name
	if i.Mark != "" {
		out += "  " + i.Mark
	}
	var why []string
	for _, text := range []string{i.Reason.Text(), i.Note, i.Problem} {
		if text != "" {
			why = append(why, text)
		}
	}
	if len(why) > 0 {
		out += ": " + strings.Join(why, "; ")
	}
	return out
}
