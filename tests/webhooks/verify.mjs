// A backend that checks signatures with the official library, and allows what is signed.
import { createServer } from 'node:http';
import { Webhook } from 'standardwebhooks';

const webhook = new Webhook(process.env.WEBHOOK_SECRET);

createServer(async (request, response) => {
  let body = '';
  for await (const chunk of request.setEncoding('utf8')) body += chunk;
  try {
    webhook.verify(body, request.headers);
    response.end('{"allow":true}');
  } catch {
    response.writeHead(401).end();
  }
}).listen(Number(process.env.PORT), '127.0.0.1');
