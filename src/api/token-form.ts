/** What tokens that the agent makes begin with. */
export const TOKEN_PREFIX = 'dagt_'
/** 256 bits in base64url behind it. */
export const TOKEN_FORM = /^dagt_[\w-]{43}$/
