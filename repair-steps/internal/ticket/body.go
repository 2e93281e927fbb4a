package ticket

import (
	"bytes"
	_ "embed" // for the template
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	template "github.com/DataDog/datadog-agent/pkg/template/text"

	"github.com/nvidia/nvsentinel/internal/artifact"
)

// most is how many bytes the files of the facts and of the template have at most.
const most = 256 << 10

//go:embed default.json.tmpl
var builtIn string

// Write makes the body of the configuration's files: of the same files the same body.
func Write(c Config) ([]byte, error) {
	text, err := read(c.Facts)
	if err != nil {
		return nil, fmt.Errorf("reading facts (--facts): %w", err)
	}
	facts := map[string]any{}
	from := json.NewDecoder(bytes.NewReader(text))
	from.UseNumber()
	err = from.Decode(&facts)
	if err == nil && from.More() {
		err = errors.New("it goes on behind its end")
	}
	if err != nil {
		return nil, fmt.Errorf("reading facts (--facts): %s is no JSON object: %w", c.Facts, err)
	}
	how := builtIn
	if c.Template != "" {
		text, err := read(c.Template)
		if err != nil {
			return nil, fmt.Errorf("reading template (--template): %w", err)
		}
		how = string(text)
	}
	return render(how, facts, c.MaxBody)
}

// render makes a body of at most limit bytes. What a template inserts by toJson stays a
// value, whatever is in it; a body that is no JSON is none.
func render(how string, facts map[string]any, limit int) ([]byte, error) {
	t, err := template.New("ticket").Funcs(artifact.Functions).Parse(how)
	if err != nil {
		return nil, fmt.Errorf("reading template (--template): %w", err)
	}
	out := &bounded{room: limit}
	if err := t.Execute(out, facts); err != nil {
		return nil, fmt.Errorf("making the ticket: %w", err)
	}
	var body bytes.Buffer
	if err := json.Compact(&body, out.kept.Bytes()); err != nil {
		return nil, fmt.Errorf("making the ticket: the template makes no JSON; every value needs toJson: %w", err)
	}
	return body.Bytes(), nil
}

// bounded takes no more than its room.
type bounded struct {
	kept bytes.Buffer
	room int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.kept.Len()+len(p) > b.room {
		return 0, fmt.Errorf("the body is larger than %d bytes (--max-body-bytes)", b.room)
	}
	return b.kept.Write(p)
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return text, err
}
