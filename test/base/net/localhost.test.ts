import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { hostsFileHasLocalhost, localhostLookup } from '../../../src/base/net/localhost.ts'

describe('localhostLookup', () => {
  it.each([true, false])('leads to loopback, with a choice of addresses: %s', async (choice) => {
    const server = createServer((socket) => socket.end('here'))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    const { port } = server.address() as AddressInfo
    const socket = connect({
      // Its last label is never given to anybody (RFC 6761 section 6.4).
      host: 'localhost.invalid',
      port,
      lookup: localhostLookup,
      autoSelectFamily: choice,
    })
    const [said] = await once(socket, 'data')
    expect(String(said)).toBe('here')
  })
})

describe('hostsFileHasLocalhost', () => {
  it.each([
    ['127.0.0.1 localhost\n', true],
    ['127.0.0.1\tlocalhost localhost.localdomain\n::1 ip6-localhost localhost # both\n', true],
    ['', false],
    ['127.0.1.1 device\n', false],
    ['127.0.0.1 localhost.localdomain\n', false],
    ['# 127.0.0.1 localhost\n', false],
    ['127.0.0.1 localhost\n192.168.1.5 localhost\n', false],
  ])('reads %j', (text, isThere) => {
    const folder = mkdtempSync(join(tmpdir(), 'hosts-'))
    onTestFinished(() => rmSync(folder, { recursive: true }))
    writeFileSync(join(folder, 'hosts'), text)
    expect(hostsFileHasLocalhost(join(folder, 'hosts'))).toBe(isThere)
  })

  it('does without the file', () => {
    expect(hostsFileHasLocalhost('/nowhere/hosts')).toBe(false)
  })
})
