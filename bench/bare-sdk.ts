/** One tunnel by the SDK alone, with its own reconnect: what the agent's supervision is held against. */
import { readFileSync } from 'node:fs'
import { SessionBuilder } from '@ngrok/ngrok'

const [serverAddr = '', caPath = '', tokenPath = '', domain = '', port = ''] = process.argv.slice(2)
const session = await new SessionBuilder()
  .authtoken(readFileSync(tokenPath, 'utf8').trim())
  .serverAddr(serverAddr)
  .caCert(readFileSync(caPath))
  .connect()
const listener = await session
  .httpEndpoint()
  .domain(domain)
  .listenAndForward(`http://localhost:${port}`)
console.log(listener.url())
setInterval(() => {}, 60_000)
