"""Running bookies, asked over their own protocol; nothing here can write, fence or recover."""
