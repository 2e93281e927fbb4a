package watch

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// encode writes a decoded object as JSON from which it is decoded to the same: a whole
// number that is a float64 stays one, which encoding/json does not see to.
func encode(object map[string]any) ([]byte, error) {
	out, err := appendValue(make([]byte, 0, 512), object)
	if err != nil {
		return nil, err
	}
	return append(make([]byte, 0, len(out)), out...), nil // no spare capacity is kept
}

func appendValue(out []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case map[string]any:
		return appendMap(out, v)
	case []any:
		return appendList(out, v)
	case string:
		return appendText(out, v)
	case int64:
		return strconv.AppendInt(out, v, 10), nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e21 { // beyond, JSON has an exponent
			return strconv.AppendFloat(out, v, 'f', 1, 64), nil
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encoding a %T: %w", value, err)
	}
	return append(out, text...), nil
}

func appendMap(out []byte, value map[string]any) ([]byte, error) {
	if value == nil {
		return append(out, "null"...), nil
	}
	var err error
	out = append(out, '{')
	first := len(out)
	for key, x := range value {
		if len(out) > first {
			out = append(out, ',')
		}
		if out, err = appendText(out, key); err != nil {
			return nil, err
		}
		if out, err = appendValue(append(out, ':'), x); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

func appendList(out []byte, value []any) ([]byte, error) {
	if value == nil {
		return append(out, "null"...), nil
	}
	var err error
	out = append(out, '[')
	for i, x := range value {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = appendValue(out, x); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

// appendText writes a text; most need no escapes.
func appendText(out []byte, value string) ([]byte, error) {
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, err := json.Marshal(value)
			if err != nil {
				return nil, fmt.Errorf("encoding a text: %w", err)
			}
			return append(out, text...), nil
		}
	}
	return append(append(append(out, '"'), value...), '"'), nil
}
