// A backend behind Encke whose responses Encke holds, with Go's standard library alone.
//
// ENCKE_URL=http://127.0.0.1:8080 ENCKE_API_KEY=… PORT=3000 go run backend.go
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
)

// publish publishes an order on the channel /orders: this releases all responses that wait for it.
func publish(data json.RawMessage) error {
	body, err := json.Marshal(map[string]any{"channel": "/orders", "data": data})
	if err != nil {
		return err
	}
	request, err := http.NewRequest("POST", os.Getenv("ENCKE_URL")+"/api/v1/publish", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("ENCKE_API_KEY"))
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err == nil && response.StatusCode != 200 {
		err = fmt.Errorf("status %d", response.StatusCode)
	}
	return err
}

func main() {
	http.HandleFunc("GET /orders/next", func(w http.ResponseWriter, _ *http.Request) {
		// Encke holds this response. Without an order for 20 seconds it is the one that the client gets.
		w.Header().Set("Grip-Hold", "response")
		w.Header().Set("Grip-Channel", "orders")
		w.Header().Set("Grip-Timeout", "20")
		fmt.Fprint(w, "null")
	})
	http.HandleFunc("GET /orders/stream", func(w http.ResponseWriter, _ *http.Request) {
		// Encke goes on with this response, a line for each order.
		w.Header().Set("Grip-Hold", "stream")
		w.Header().Set("Grip-Channel", "orders")
		fmt.Fprintln(w, "orders:")
	})
	http.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var order json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil || publish(order) != nil {
			http.Error(w, "the order was not published", 500)
		}
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}
