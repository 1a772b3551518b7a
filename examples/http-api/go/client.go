// Publishes over Encke's HTTP API and reads the history, with Go's standard library alone.
//
//	ENCKE_URL=http://127.0.0.1:8080 ENCKE_API_KEY=… go run client.go
package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"time"
)

type object = map[string]any

// call calls an operation, and tries again while the server is busy. With a key a repeated request publishes nothing twice.
func call(method, path string, body object, key string) object {
	text, _ := json.Marshal(body)
	if body == nil {
		text = nil
	}
	for attempt := time.Duration(1); attempt <= 5; attempt++ {
		request, _ := http.NewRequest(method, os.Getenv("ENCKE_URL")+"/api/v1"+path, bytes.NewReader(text))
		request.Header.Set("Authorization", "Bearer "+os.Getenv("ENCKE_API_KEY"))
		request.Header.Set("Content-Type", "application/json")
		if key != "" {
			request.Header.Set("Idempotency-Key", key)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			log.Fatal(err)
		}
		var answer object
		err = json.NewDecoder(response.Body).Decode(&answer)
		response.Body.Close()
		if err == nil && response.StatusCode == 200 {
			return answer
		} else if response.StatusCode != 503 {
			log.Fatal(answer["title"], ": ", answer["detail"], answer["errors"])
		}
		time.Sleep(attempt * time.Second)
	}
	log.Fatal("the server is busy")
	return nil
}

func main() {
	channel := "/history/go-" + rand.Text()[:8]
	fmt.Println("publish:", call("POST", "/publish", object{"channel": channel, "data": object{"price": 42}}, rand.Text()))
	messages := []object{{"channels": []string{channel}, "data": 0}, {"channels": []string{channel, "/news"}, "data": 1}}
	fmt.Println("batch:", call("POST", "/publish/batch", object{"messages": messages}, ""))
	history := call("GET", "/history?channel="+url.QueryEscape(channel), nil, "")
	fmt.Println("history:", len(history["messages"].([]any)), "messages")
}
