package convert

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Values converts values of the chart. The comments of a value go with it.
func Values(text string) (Result, error) {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return Result{}, fmt.Errorf("reading YAML: %w", err)
	}
	if len(document.Content) == 0 {
		return Result{Text: text}, nil
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return Result{}, errors.New("reading values: the file is not a YAML map")
	}
	var r Result
	list := of(Value, "")
	// What is inside first: a value of its own may have another place than what is around it.
	slices.SortStableFunc(list, func(a, b Name) int { return cmp.Compare(strings.Count(b.Name, "."), strings.Count(a.Name, ".")) })
	for _, n := range list {
		key, value := take(root, strings.Split(n.Name, "."))
		if value == nil {
			continue
		}
		r.Changed++
		if n.To == "" {
			r.leave(n.Name, n)
			continue
		}
		if to, ok := n.Values[value.Value]; ok {
			value.Value = to
		}
		key.HeadComment = strings.TrimLeft(key.HeadComment+"\n"+mark+n.Name+" is now "+n.To, "\n")
		if !setPath(root, strings.Split(n.To, "."), key, value) {
			r.Left = append(r.Left, fmt.Sprintf("%s: use %s, which the file already sets to another value", n.Name, n.To))
		}
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(&document), encoder.Close()); err != nil {
		return Result{}, fmt.Errorf("writing YAML: %w", err)
	}
	r.Text = strings.TrimSuffix(out.String(), "{}\n")
	return r, nil
}

// take takes a value out of a map, and the maps that are empty then.
func take(at *yaml.Node, path []string) (key, value *yaml.Node) {
	i := index(at, path[0])
	if i < 0 {
		return nil, nil
	}
	key, value = at.Content[i], at.Content[i+1]
	if len(path) > 1 {
		inner := value
		if key, value = take(inner, path[1:]); value == nil || len(inner.Content) > 0 {
			return key, value
		}
	}
	at.Content = slices.Delete(at.Content, i, i+2)
	return key, value
}

// setPath puts a value into a map, below maps that it makes. Maps become one. It is false where
// there is another value.
func setPath(at *yaml.Node, path []string, key, value *yaml.Node) bool {
	i := index(at, path[0])
	switch {
	case i < 0 && len(path) == 1:
		key.Value = path[0]
		at.Content = append(at.Content, key, value)
		return true
	case i < 0:
		at.Content = append(at.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: path[0]}, &yaml.Node{Kind: yaml.MappingNode})
		return setPath(at.Content[len(at.Content)-1], path[1:], key, value)
	case at.Content[i+1].Kind != yaml.MappingNode:
		return len(path) == 1 && at.Content[i+1].Value == value.Value
	case len(path) > 1:
		at.Content[i+1].Style = 0 // comments need lines of their own
		return setPath(at.Content[i+1], path[1:], key, value)
	case value.Kind != yaml.MappingNode:
		return false
	}
	at.Content[i+1].Style = 0
	at.Content[i].HeadComment = strings.TrimLeft(at.Content[i].HeadComment+"\n"+key.HeadComment, "\n")
	all := true
	for j := 0; j < len(value.Content); j += 2 {
		all = setPath(at.Content[i+1], []string{value.Content[j].Value}, value.Content[j], value.Content[j+1]) && all
	}
	return all
}

// index is the place of a key in a map, or -1.
func index(at *yaml.Node, key string) int {
	if at.Kind != yaml.MappingNode {
		return -1
	}
	for i := 0; i < len(at.Content); i += 2 {
		if at.Content[i].Value == key {
			return i
		}
	}
	return -1
}
