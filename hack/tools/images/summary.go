package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// row is an image of one platform in the summary.
type row struct {
	name, platform, lacks string
	digest                v1.Hash // of the image's index, for all platforms
	packed, unpacked      int64
}

// summary is what a run made.
type summary struct {
	rows    []row
	leftOut []string
	// totals are of each platform's layers, each layer once.
	totals map[string]map[v1.Hash]row
}

// add measures an image that was made.
func (s *summary) add(name string, digest v1.Hash, v variant) error {
	r := row{name: name, platform: v.Platform.String(), lacks: v.Lacks, digest: digest}
	layers, err := v.Image.Layers()
	if err != nil {
		return err
	}
	if s.totals == nil {
		s.totals = map[string]map[v1.Hash]row{}
	}
	if s.totals[r.platform] == nil {
		s.totals[r.platform] = map[v1.Hash]row{}
	}
	for _, l := range layers {
		one, err := measure(l)
		if err != nil {
			return err
		}
		r.packed += one.packed
		r.unpacked += one.unpacked
		s.totals[r.platform][one.digest] = one
	}
	s.rows = append(s.rows, r)
	return nil
}

func measure(l v1.Layer) (row, error) {
	digest, err := l.Digest()
	if err != nil {
		return row{}, err
	}
	packed, err := l.Size()
	if err != nil {
		return row{}, err
	}
	content, err := l.Uncompressed()
	if err != nil {
		return row{}, err
	}
	defer content.Close()
	unpacked, err := io.Copy(io.Discard, content)
	return row{digest: digest, packed: packed, unpacked: unpacked}, err
}

// write prints the table, what was left out, and what each lacks.
func (s *summary) write(to io.Writer) error {
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "IMAGE\tPLATFORM\tDIGEST\tCOMPRESSED\tUNCOMPRESSED\t")
	for _, r := range s.rows {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\n", r.name, r.platform, r.digest, megabytes(r.packed), megabytes(r.unpacked), r.lacks)
	}
	for _, platform := range slices.Sorted(maps.Keys(s.totals)) {
		var all row
		for _, l := range s.totals[platform] {
			all.packed += l.packed
			all.unpacked += l.unpacked
		}
		fmt.Fprintf(out, "total\t%s\tlayers that images share counted once\t%s\t%s\t\n", platform, megabytes(all.packed), megabytes(all.unpacked))
	}
	for _, l := range s.leftOut {
		fmt.Fprintf(out, "left out: %s\n", l)
	}
	return out.Flush()
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
