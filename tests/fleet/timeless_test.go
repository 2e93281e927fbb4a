package fleet

import (
	"fmt"
	"regexp"
)

// unsteady is what differs from run to run, and what stands for it.
var unsteady = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`), "<time>"},
	{regexp.MustCompile(`([ \n])(\d\d-\d\d )?\d\d:\d\d:\d\d(\.\d{3})?`), "$1<time>"},
	{regexp.MustCompile(` +\+[0-9dhms.]+  `), "  "},
	{regexp.MustCompile(`(for|of its|, )( ?)[0-9]+[0-9dhms.]*( ago|  \[|\n)`), "$1$2<span>$3"},
	{regexp.MustCompile(`(remediating|held|draining|quarantined|manual-intervention|recovering)( +)[0-9][0-9dhms.]*  `), "$1  <span>  "},
	{regexp.MustCompile(`evaluation, [0-9][0-9dhms.]* ago`), "evaluation, <span> ago"},
	{regexp.MustCompile(`\bpid=\d+`), "pid=<pid>"},
	{regexp.MustCompile(`-[0-9a-f]{8}\b(-\d+)?`), "-<hash>"},
	{regexp.MustCompile(`newest \d+ faults`), "newest <n> faults"},
	{regexp.MustCompile(`\d+ held and \d+ skipped`), "<n> held and <n> skipped"},
	{regexp.MustCompile(`([^ \n]) {2,}`), "$1  "},
}

var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// timeless is a text without what differs from run to run; ids are numbered in the
// order of their first sight.
func timeless(text string) string {
	seen := map[string]string{}
	text = uuids.ReplaceAllStringFunc(text, func(id string) string {
		if seen[id] == "" {
			seen[id] = fmt.Sprintf("<id %d>", len(seen)+1)
		}
		return seen[id]
	})
	for _, x := range unsteady {
		text = x.pattern.ReplaceAllString(text, x.with)
	}
	return text
}
