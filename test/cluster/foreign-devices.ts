/**
 * `foreign-devices.ts SETTINGS-FILE`: devices with the vendor's SDK alone, a session each, as its
 * documentation shows it. It prints a line when all are open, and runs until it is killed.
 */
import { readFileSync } from 'node:fs'
import ngrok from '@ngrok/ngrok'

const { server, ca, authtoken, hosts, port, policy } = JSON.parse(
  readFileSync(process.argv[2] ?? '', 'utf8'),
)
for (const host of hosts) {
  const session = await new ngrok.SessionBuilder()
    .authtoken(authtoken)
    .serverAddr(server)
    .caCert(Buffer.from(ca))
    .connect()
  const endpoint = session.httpEndpoint().domain(host).trafficPolicy(policy)
  await endpoint.listenAndForward(`http://127.0.0.1:${port}`)
}
process.stdout.write('{}\n')
setInterval(() => {}, 60_000)
