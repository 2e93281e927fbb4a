package main

import (
	"bufio"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// supportedPlatforms are the platforms that images are made for.
var supportedPlatforms = []string{"linux/amd64", "linux/arm64"}

// entry is one image of images.txt.
type entry struct {
	Name string
	// Packages are those of its programs. The first one is /service, which runs by default;
	// each other one has its own name.
	Packages []string
	// Cgo: a program calls a C library, which a base has to bring.
	Cgo bool
	// Tool is a program of this machine that the image has beside its own, collected
	// by hack/<tool>.sh; empty for most.
	Tool string
	// Needed: without the tool the image is of no use.
	Needed bool
}

// readCatalog reads images.txt.
func readCatalog(from io.Reader) ([]entry, error) {
	var out []entry
	for lines := bufio.NewScanner(from); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) != 2 && len(words) != 4 {
			return nil, fmt.Errorf("the list of images has the line %q: want a name, packages with commas between them, and with or needs something", line)
		}
		e := entry{Name: words[0], Packages: strings.Split(words[1], ",")}
		switch {
		case len(words) == 2:
		case words[2] == "needs" && words[3] == "cgo":
			e.Cgo = true
		case words[2] == "needs" || words[2] == "with":
			e.Tool, e.Needed = words[3], words[2] == "needs"
		default:
			return nil, fmt.Errorf("the list of images has %q for %s: must be with or needs", words[2], e.Name)
		}
		out = append(out, e)
	}
	return out, nil
}

// choose returns the images that only names, separated by commas, or all.
func choose(all []entry, only string) ([]entry, error) {
	if only == "" {
		return all, nil
	}
	var out []entry
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(e entry) bool { return e.Name == strings.TrimSpace(name) })
		if i < 0 {
			var names []string
			for _, e := range all {
				names = append(names, e.Name)
			}
			return nil, fmt.Errorf("ONLY names %q, which is no image; there are %s", name, strings.Join(names, ", "))
		}
		out = append(out, all[i])
	}
	return out, nil
}

// host is the platform of this machine's images.
func host() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// parsePlatforms reads platforms, separated by commas; none is the host's.
func parsePlatforms(text string) ([]v1.Platform, error) {
	if text == "" {
		return []v1.Platform{host()}, nil
	}
	var out []v1.Platform
	for name := range strings.SplitSeq(text, ",") {
		os, arch, _ := strings.Cut(strings.TrimSpace(name), "/")
		p := v1.Platform{OS: os, Architecture: arch}
		switch {
		case !slices.Contains(supportedPlatforms, p.String()):
			return nil, fmt.Errorf("PLATFORMS names %q; there are %s", name, strings.Join(supportedPlatforms, ", "))
		case !slices.ContainsFunc(out, p.Equals):
			out = append(out, p)
		}
	}
	return out, nil
}
