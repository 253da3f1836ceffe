import process from 'node:process'

/**
 * What is used of `node:http`. An import of that module reads every one of its exports, and with them
 * Node 24 loads another HTTP client and HTTP/2, which take memory and time from every start.
 */
export const { createServer, request, STATUS_CODES } = process.getBuiltinModule('node:http')
